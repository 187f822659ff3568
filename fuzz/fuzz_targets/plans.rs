//! What the daemon and its launcher say to each other: whatever decodes says the same when it is encoded and decoded
//! again, nothing panics, and a filter is made for every plan.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandboxd_jail::report::Failure;
use sandboxd_jail::wire::{self, MESSAGE_BYTES_MAX, Reply, Request};

fuzz_target!(|payload: &[u8]| {
    if let Ok(request) = wire::decode::<Request>(payload) {
        match wire::encode(&request) {
            Ok(bytes) => {
                assert!(bytes.len() <= MESSAGE_BYTES_MAX);
                assert_eq!(wire::decode::<Request>(&bytes).as_ref(), Ok(&request));
            }
            // Texts may be shorter in another form of the same.
            Err(error) => assert!(payload.len() > MESSAGE_BYTES_MAX / 2, "{error}"),
        }
    }
    if let Ok(reply) = wire::decode::<Reply>(payload) {
        let bytes = wire::encode(&reply).expect("an answer is short");
        assert_eq!(wire::decode::<Reply>(&bytes).as_ref(), Ok(&reply));
    }
    // A report comes from a child that may be anything by then.
    if let Ok(failure) = Failure::decode(payload) {
        assert!(!failure.to_string().is_empty());
        let again = Failure::decode(&failure.encode()).expect("what was decoded can be encoded");
        assert_eq!((again.step, again.errno), (failure.step, failure.errno));
    }
});
