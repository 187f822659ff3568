//! Paths that callers name: what is said to lie in the work directory is below it by every reading, and is judged alike
//! when it is judged again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandboxd_files::path::in_work_dir;

fuzz_target!(|input: (&[u8], &[u8])| {
    let (work_dir, path) = input;
    for work_dir in [work_dir, b"/workspace", b"/"] {
        let Ok(inner) = in_work_dir(work_dir, path) else {
            continue;
        };
        assert!(path.starts_with(b"/") && !path.contains(&0));
        assert!(!inner.starts_with(b"/") && !inner.ends_with(b"/"));
        if !inner.is_empty() {
            for name in inner.split(|byte| *byte == b'/') {
                assert!(!matches!(name, b"" | b"." | b".."), "{inner:?}");
            }
        }
        let mut whole = work_dir.to_vec();
        whole.push(b'/');
        whole.extend_from_slice(&inner);
        if work_dir.starts_with(b"/") {
            assert_eq!(in_work_dir(work_dir, &whole).as_ref(), Ok(&inner));
        }
    }
});
