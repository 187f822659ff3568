//! Takes out of a page's text what hinders reading: runs of spaces and empty lines, and words broken at a line's end.

/// The text, tidied.
pub(super) fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.split(['\n', '\x0c']) {
        let line = one_spaced(line);
        if line.is_empty() {
            empty += 1;
            continue;
        }
        if !tidy.is_empty() {
            let joined = empty == 0 && joins(&tidy, &line);
            if joined {
                tidy.pop();
            } else {
                tidy.push_str(if empty == 0 { "\n" } else { "\n\n" });
            }
        }
        empty = 0;
        tidy.push_str(&line);
    }
    tidy
}

fn one_spaced(line: &str) -> String {
    let words = line.split(' ').filter(|word| !word.is_empty());
    let mut spaced = String::with_capacity(line.len());
    for word in words {
        if !spaced.is_empty() {
            spaced.push(' ');
        }
        spaced.push_str(word);
    }
    spaced.trim().to_owned()
}

/// Whether a line ends in half a word, and the next one starts with the other half.
fn joins(before: &str, after: &str) -> bool {
    let letter = |char: char| char.is_alphanumeric() || char == '_';
    let mut end = before.chars().rev();
    end.next() == Some('-') && end.next().is_some_and(letter) && after.starts_with(letter)
}

#[cfg(test)]
mod tests {
    use super::tidy;

    #[test]
    fn what_hinders_reading_is_gone() {
        let table = [
            ("", ""),
            ("  a   b \n c\n", "a b\nc"),
            ("a\n\n\n\n\nb", "a\n\nb"),
            ("a\n \nb", "a\n\nb"),
            ("exam-\nple and a - \nb", "example and a -\nb"),
            ("one-\n\ntwo", "one-\n\ntwo"),
            ("page\x0cnext", "page\nnext"),
        ];
        for (text, expected) in table {
            assert_eq!(tidy(text), expected, "{text:?}");
        }
    }
}
