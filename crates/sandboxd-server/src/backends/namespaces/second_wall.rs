//! What the second wall holds, by the generation of Landlock that a sandbox was told to be held by.

use crate::backends::Enforcement;

/// In force, with what the generation knows; or not, where the kernel had none to give.
pub(super) fn enforcement(generation: u8) -> Enforcement {
    let more = match generation {
        0 => {
            let why = "this kernel has none, or one that would keep files from being moved; the first walls stand without it";
            return Enforcement::Unenforced(why.to_owned());
        }
        1..=4 => "",
        5 => ", requests to devices",
        6.. => ", requests to devices, signals, abstract sockets",
    };
    Enforcement::Enforced(format!(
        "Landlock {generation}: mounts, tracing, device files{more}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_no_more_than_the_generation_can() {
        let words = |generation| match enforcement(generation) {
            Enforcement::Enforced(how) => how,
            Enforcement::Unenforced(_) => String::new(),
        };
        assert_eq!(words(0), "");
        assert!(words(2).contains("tracing") && !words(2).contains("requests"));
        assert!(words(5).contains("requests") && !words(5).contains("signals"));
        assert!(words(7).contains("signals"));
    }
}
