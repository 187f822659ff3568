"""The comparison of recordings can fail, in each way in which it should."""

import copy
import unittest

from golden import compare


class Comparison(unittest.TestCase):
    def setUp(self) -> None:
        self.theirs = compare.recorded("a")
        self.ours = copy.deepcopy(self.theirs)

    def change(self, label: str, **fields: object) -> None:
        next(record for record in self.ours if record["label"] == label).update(fields)

    def judged(self, *listed: compare.Accepted) -> list[str]:
        labels = {record["label"] for record in self.theirs}
        return compare.judge(list(compare.differences(self.theirs, self.ours)), list(listed), labels)

    def test_equal_answers_pass(self) -> None:
        self.assertEqual(self.judged(), [])

    def test_an_unlisted_difference_is_told(self) -> None:
        self.change("healthz", status=500)
        self.change("create-dup", body='{"detail":"Another text"}')
        said = self.judged()
        self.assertEqual([line.split(":")[0] for line in said], ["healthz", "create-dup"])

    def test_a_listed_difference_passes_only_with_its_field_and_its_status(self) -> None:
        self.change("healthz", status=503)
        listed = compare.Accepted(("healthz",), ("status",), 503, "a reason")
        self.assertEqual(self.judged(listed), [])
        self.assertEqual(len(self.judged(compare.Accepted(("healthz",), ("status",), 500, "a reason"))), 1)
        self.assertEqual(len(self.judged(compare.Accepted(("healthz",), ("body",), None, "a reason"))), 2)

    def test_a_listed_difference_that_is_gone_is_told(self) -> None:
        listed = compare.Accepted(("healthz",), ("body.status",), None, "a reason")
        self.assertEqual(self.judged(listed), ["healthz: body.status: listed as different, and is not"])

    def test_a_cut_list_is_compared_as_far_as_it_goes(self) -> None:
        cut = next(record for record in self.ours if record["label"] == "events-all")
        self.assertEqual(len(cut["body"]), compare.LONGEST_RECORDED)
        self.change("events-all", body=cut["body"].replace('"ok":false', '"ok":null ', 1))
        self.assertEqual(len(self.judged()), 1)
        self.assertIn("body.events[0].ok", self.judged()[0])

    def test_the_document_lists_what_is_accepted(self) -> None:
        how = "cd tests/peer && python3 -m golden.compare --write"
        self.assertEqual(compare.DOCUMENT.read_text(), compare.document(), how)

    def test_every_listed_label_is_a_request(self) -> None:
        known = {record["label"] for era in "ab" for record in compare.recorded(era)}
        for era in "ab":
            for backend in ("namespaces", "docker"):
                for entry in compare.accepted(era, backend):
                    self.assertEqual(set(entry.labels) - known, set())


if __name__ == "__main__":
    unittest.main()
