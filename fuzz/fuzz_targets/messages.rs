//! Payloads of messages: whatever decodes says the same when it is encoded and decoded again, and nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandboxd_protocol::frame;
use sandboxd_protocol::message::{FileAnswer, Request, RunControl, RunEvent, Welcome, WriteControl};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(payload: &[u8]) {
    if let Ok(message) = frame::message::<T>(payload) {
        let bytes = postcard::to_stdvec(&message).expect("what was decoded can be encoded");
        assert_eq!(frame::message::<T>(&bytes).as_ref(), Ok(&message));
    }
}

fuzz_target!(|payload: &[u8]| {
    // What a guest sends, which the daemon must not trust.
    again::<Welcome>(payload);
    again::<RunEvent>(payload);
    again::<FileAnswer>(payload);
    // What a daemon sends, which a guest of another version must survive.
    again::<Request>(payload);
    again::<RunControl>(payload);
    again::<WriteControl>(payload);
});
