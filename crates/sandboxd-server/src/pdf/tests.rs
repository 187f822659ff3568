//! PDFs are made here, by hand: what matters is what a hostile or an odd one does.

use super::*;
use crate::limits::PDF_STATES_MAX;
use std::time::Instant;

/// A PDF of these objects, the first of which is its catalog.
fn file(objects: &[String]) -> Vec<u8> {
    let mut file = b"%PDF-1.5\n".to_vec();
    let mut offsets = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        offsets.push(file.len());
        file.extend(format!("{} 0 obj\n{object}\nendobj\n", index + 1).as_bytes());
    }
    let table = file.len();
    file.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).as_bytes());
    for offset in offsets {
        file.extend(format!("{offset:010} 00000 n \n").as_bytes());
    }
    let size = objects.len() + 1;
    let trailer =
        format!("trailer\n<< /Size {size} /Root 1 0 R /Info 3 0 R >>\nstartxref\n{table}\n%%EOF\n");
    file.extend(trailer.as_bytes());
    file
}

fn stream(content: &str) -> String {
    format!(
        "<< /Length {} >>\nstream\n{content}\nendstream",
        content.len()
    )
}

/// A PDF with one font, a form that says "in a form", more objects from number 6 on, and pages of this content.
fn pdf(information: &str, pages: &[&str], more: &[String]) -> Vec<u8> {
    let form = "BT /F1 10 Tf 0 700 Td (in a form) Tj ET";
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        String::new(),
        format!("<< {information} >>"),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_owned(),
        format!(
            "<< /Type /XObject /Subtype /Form /Length {} >>\nstream\n{form}\nendstream",
            form.len()
        ),
    ];
    objects.extend_from_slice(more);
    let mut kids = String::new();
    for page in pages {
        objects.push(stream(page));
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /Contents {} 0 R >>",
            objects.len()
        ));
        let _ = write!(kids, "{} 0 R ", objects.len());
    }
    let fonts = match more.len() {
        0 => "/F1 4 0 R",
        _ => "/F1 4 0 R /F2 6 0 R",
    };
    objects[1] = format!(
        "<< /Type /Pages /Kids [{kids}] /Count {} /Resources << /Font << {fonts} >> /XObject << /X 5 0 R >> >> >>",
        pages.len()
    );
    file(&objects)
}

fn read(file: &[u8]) -> Result<String, PdfError> {
    extracted(file, Instant::now() + Duration::from_secs(30))
}

#[test]
fn information_and_pages_are_told_apart() {
    let file = pdf(
        "/Title (On text) /Author <FEFF00C900760061> /Subject (Nothing) /Creator (nobody)",
        &[
            "BT /F1 12 Tf 72 720 Td (First line) Tj 0 -14 Td (second  line) Tj ET",
            "0 0 10 10 re f",
            "BT /F1 12 Tf 72 720 Td (Third page, caf\\351) Tj ET",
        ],
        &[],
    );
    assert_eq!(
        read(&file).expect("text"),
        "Title: On text\nAuthor: Éva\nSubject: Nothing\n\n\
         --- Page 1 ---\nFirst line\nsecond line\n\n\
         --- Page 3 ---\nThird page, café"
    );
}

#[test]
fn positions_make_lines_and_spaces() {
    let table = [
        ("(Hel) Tj (lo) Tj", "Hello"),
        ("[(Hel) -20 (lo) -300 (you)] TJ", "Hello you"),
        ("(a) Tj 100 0 Td (b) Tj", "a b"),
        ("(a) Tj 0 -14 Td (b) Tj 0 -28 Td (c) Tj", "a\nb\nc"),
        ("14 TL (a) Tj T* (b) Tj (c) '", "a\nb\nc"),
        ("14 TL (a) Tj 1 2 (b) \"", "a\nb"),
        ("(exam-) Tj 0 -14 Td (ple) Tj", "example"),
        ("1 0 0 1 72 700 Tm (a) Tj 1 0 0 1 72 680 Tm (b) Tj", "a\nb"),
        ("0 1 -1 0 72 700 Tm (up) Tj (wards) Tj", "upwards"),
        ("(a) Tj ET q 1 0 0 1 0 -50 cm BT (b) Tj ET Q BT", "a\nb"),
        ("(page) Tj ET /X Do BT", "page\nin a form"),
    ];
    for (content, expected) in table {
        let page = format!("BT /F1 12 Tf 72 720 Td {content} ET");
        let text = read(&pdf("", &[&page], &[])).expect(content);
        assert_eq!(text, format!("--- Page 1 ---\n{expected}"), "{content}");
    }
}

#[test]
fn fonts_say_what_their_codes_mean() {
    let map = stream(
        "1 begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfrange <0001> <0020> <0041> endbfrange",
    );
    let composite = "<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /ToUnicode 7 0 R >>";
    let content = "BT /F2 12 Tf 0 9 Td <000100020003> Tj ET";
    let file = pdf("", &[content], &[composite.to_owned(), map]);
    assert_eq!(read(&file).expect("text"), "--- Page 1 ---\nABC");

    let named = "<< /Type /Font /Subtype /Type1 /Encoding << /Differences [1 /eacute /nonesuch 65 /B] >> >>";
    let content = "BT /F2 12 Tf 0 9 Td <0102414243> Tj ET";
    let file = pdf("", &[content], &[named.to_owned()]);
    assert_eq!(read(&file).expect("text"), "--- Page 1 ---\néBBC");
}

#[test]
fn a_map_of_every_code_costs_nothing() {
    let map = stream("1 beginbfrange <00000000> <ffffffff> <0041> endbfrange");
    let font = "<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /ToUnicode 7 0 R >>";
    let content = "BT /F2 12 Tf 0 9 Td <0001> Tj /F1 12 Tf (end) Tj ET";
    let file = pdf("", &[content], &[font.to_owned(), map]);
    assert_eq!(read(&file).expect("text"), "--- Page 1 ---\nend");
}

#[test]
fn what_cannot_be_read_is_said() {
    let error = |file: &[u8]| read(file).expect_err("no text").to_string();
    for broken in [&b""[..], b"%PDF-1.4", b"no PDF", b"%PDF-1.7\n%%EOF\n"] {
        assert!(error(broken).starts_with("Failed to parse PDF: "));
    }
    assert!(error(&pdf("", &[], &[])).ends_with("PDF contains no pages"));
    assert!(error(&pdf("", &["0 0 1 1 re f"], &[])).ends_with("No extractable text found in PDF"));
}

#[test]
fn a_damaged_file_is_an_error_or_a_text_and_never_more() {
    let whole = pdf(
        "/Title (t)",
        &["BT /F1 12 Tf 72 720 Td (First line) Tj 0 -14 Td (second) Tj ET"],
        &[],
    );
    for end in (0..whole.len()).step_by(7) {
        let _ = read(&whole[..end]);
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] = b"0[(<>/)]"[at % 8];
        let _ = read(&damaged);
    }
}

#[test]
fn a_hostile_page_ends_within_its_bounds() {
    let deep = "[".repeat(5_000);
    let many = "q ".repeat(PDF_STATES_MAX * 4);
    for hostile in [
        deep.as_str(),
        many.as_str(),
        "/X Do ".repeat(1_000).as_str(),
        "BT /F1 1e38 Tf 1e38 1e38 Td (a) Tj 1e38 0 0 1e38 0 0 Tm (b) Tj ET",
        "BT /F1 -1 Tf (a) Tj /Nothing 1 Tf (b) Tj ET Q Q Q",
    ] {
        let _ = read(&pdf("", &[hostile], &[]));
    }
    // A form that shows itself.
    let form = "<< /Type /XObject /Subtype /Form /Resources << /XObject << /Y 6 0 R /Z 6 0 R >> >> /Length 12 >>\nstream\n/Y Do /Z Do \nendstream";
    let mut objects = pdf("", &["/X Do"], &[form.to_owned()]);
    let at = objects
        .windows(8)
        .position(|window| window == b"/X 5 0 R")
        .expect("a form");
    objects[at + 3] = b'6';
    let _ = read(&objects);
}

#[test]
fn too_many_objects_are_refused_before_they_are_made() {
    assert_eq!(tokens(b"<< /A [1 2 (x)] >> % c\n/B/C"), 11);
    assert_eq!(tokens(b""), 0);
    let mut file = pdf("", &["BT ET"], &[]);
    file.extend(b"0 ".repeat(PDF_TOKENS_MAX));
    assert_eq!(read(&file), Err(PdfError::TooMuch));
}

#[test]
fn a_page_that_holds_too_much_says_so() {
    let large = "0 ".repeat(PDF_PAGE_BYTES_MAX / 2 + 1);
    // Packed, so that it is not the file that is too large.
    let mut packed = lopdf::Stream::new(Dictionary::new(), large.into_bytes());
    packed.compress().expect("packed");
    let hex: String = packed.content.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let content = format!(
        "<< /Filter [/ASCIIHexDecode /FlateDecode] /Length {} >>\nstream\n{hex}>\nendstream",
        hex.len() + 1
    );
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [4 0 R] /Count 1 >>".to_owned(),
        "<< >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /Contents 5 0 R >>".to_owned(),
        content,
    ];
    let text = read(&file(&objects)).expect("words");
    assert_eq!(
        text,
        "--- Page 1 ---\n[This page holds too much to be read]"
    );
}

#[test]
fn a_deadline_that_is_over_ends_the_reading() {
    let file = pdf("", &["BT /F1 12 Tf (a) Tj ET"], &[]);
    let late = extracted(&file, Instant::now());
    assert_eq!(late, Err(PdfError::Late(PDF_SECONDS_MAX)));
}

#[tokio::test]
async fn reading_is_done_on_a_thread_of_its_own() {
    let file = pdf("", &["BT /F1 12 Tf 0 9 Td (here) Tj ET"], &[]);
    let both = tokio::join!(text(file.into()), text(Bytes::from_static(b"%PDF-")));
    assert_eq!(both.0.as_deref(), Ok("--- Page 1 ---\nhere"));
    assert!(both.1.is_err());
}
