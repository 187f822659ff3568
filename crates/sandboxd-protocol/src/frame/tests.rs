use super::*;
use crate::limits::{ANSWER_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::message::{
    Ended, Entry, Exit, FileAnswer, FileError, FileOp, FileRequest, HandBack, Hello, Kind,
    NotStarted, OutputLimit, PathRule, Request, Run, RunControl, RunEvent, TreeEnd, Welcome,
    WriteControl,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..64)
}

fn rule() -> impl Strategy<Value = PathRule> {
    prop_oneof![
        bytes().prop_map(|root| PathRule::Beneath { root }),
        Just(PathRule::Follow)
    ]
}

fn op() -> impl Strategy<Value = FileOp> {
    prop_oneof![
        any::<u64>().prop_map(|limit| FileOp::Read { limit }),
        (any::<u32>(), any::<bool>(), any::<u64>()).prop_map(|(mode, parents, limit)| {
            FileOp::Write {
                mode,
                parents,
                limit,
            }
        }),
        Just(FileOp::Stat),
        any::<u32>().prop_map(|limit| FileOp::List { limit }),
        Just(FileOp::MakeDir),
        Just(FileOp::Remove),
        bytes().prop_map(|to| FileOp::Rename { to }),
        Just(FileOp::RealPath),
    ]
}

fn output() -> impl Strategy<Value = OutputLimit> {
    prop_oneof![
        Just(OutputLimit::Unlimited),
        any::<u64>().prop_map(OutputLimit::Stop),
        any::<u64>().prop_map(OutputLimit::Discard),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let run = (
        vec(bytes(), 0..8),
        vec((bytes(), bytes()), 0..8),
        proptest::option::of(bytes()),
        any::<bool>(),
        proptest::option::of(any::<u64>()),
        output(),
    )
        .prop_map(|(argv, env, cwd, stdin, timeout_millis, output)| {
            Request::Run(Run {
                argv,
                env,
                cwd,
                stdin,
                timeout_millis,
                output,
            })
        });
    let file = (rule(), bytes(), op())
        .prop_map(|(rule, path, op)| Request::File(FileRequest { rule, path, op }));
    prop_oneof![
        any::<u16>().prop_map(|generation| Request::Hello(Hello { generation })),
        run,
        file,
        any::<u16>().prop_map(|port| Request::Dial { port }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (
        bytes(),
        prop_oneof![
            Just(Kind::File),
            Just(Kind::Directory),
            Just(Kind::Link),
            Just(Kind::Special)
        ],
        any::<u64>(),
        any::<u32>(),
        any::<i64>(),
        proptest::option::of(bytes()),
    )
        .prop_map(|(name, kind, size, mode, modified_nanos, target)| Entry {
            name,
            kind,
            size,
            mode,
            modified_nanos,
            target,
        })
}

fn answer() -> impl Strategy<Value = FileAnswer> {
    prop_oneof![
        Just(FileAnswer::Done),
        any::<u64>().prop_map(|size| FileAnswer::Content { size }),
        entry().prop_map(FileAnswer::Entry),
        (vec(entry(), 0..8), any::<bool>())
            .prop_map(|(entries, more)| FileAnswer::Entries { entries, more }),
        bytes().prop_map(FileAnswer::Path),
        Just(FileAnswer::Error(FileError::HandBack(HandBack::Link))),
        any::<i32>().prop_map(|errno| FileAnswer::Error(FileError::Os(errno))),
        any::<String>().prop_map(|why| FileAnswer::Error(FileError::Invalid(why))),
    ]
}

fn event() -> impl Strategy<Value = RunEvent> {
    prop_oneof![
        Just(RunEvent::Started),
        any::<String>().prop_map(|why| RunEvent::NotStarted(NotStarted::Invalid(why))),
        (bytes(), any::<i32>())
            .prop_map(|(path, errno)| RunEvent::NotStarted(NotStarted::Cwd(path, errno))),
        (any::<u8>(), proptest::option::of(any::<u8>()), any::<u64>()).prop_map(
            |(code, signal, discarded_bytes)| RunEvent::Exited(Exit {
                code,
                signal,
                ended: Ended::Output,
                discarded_bytes,
            })
        ),
        any::<u32>().prop_map(RunEvent::StdinTaken),
    ]
}

fn round_trip<T>(word: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let mut wire = BytesMut::new();
    put_message(&mut wire, word, MESSAGE_BYTES_MAX).expect("fits");
    // A frame is found only when its last byte is there.
    let mut part = BytesMut::new();
    while wire.len() > 1 {
        part.extend_from_slice(&wire.split_to(1));
        assert_eq!(take(&mut part, MESSAGE_BYTES_MAX), Ok(None));
        assert!(missing(&part, MESSAGE_BYTES_MAX).expect("sound") > 0);
    }
    part.extend_from_slice(&wire);
    let frame = take(&mut part, MESSAGE_BYTES_MAX)
        .expect("sound")
        .expect("whole");
    assert_eq!(frame.tag, Tag::Message);
    assert!(part.is_empty());
    assert_eq!(&message::<T>(&frame.payload).expect("decodes"), word);
}

proptest! {
    #[test]
    fn requests_survive_the_wire(word in request()) {
        round_trip(&word);
    }

    #[test]
    fn answers_survive_the_wire(word in answer()) {
        round_trip(&word);
    }

    #[test]
    fn events_survive_the_wire(word in event()) {
        round_trip(&word);
    }

    #[test]
    fn raw_frames_survive_in_order(pieces in vec((0_u8..3, vec(any::<u8>(), 0..300)), 0..10)) {
        let mut wire = BytesMut::new();
        let tag = |n: u8| [Tag::Content, Tag::Stdout, Tag::Stderr][usize::from(n)];
        for (n, piece) in &pieces {
            put_raw(&mut wire, tag(*n), piece).expect("fits");
        }
        for (n, piece) in &pieces {
            let frame = take(&mut wire, ANSWER_BYTES_MAX).expect("sound").expect("whole");
            prop_assert_eq!(frame.tag, tag(*n));
            prop_assert_eq!(&frame.payload[..], &piece[..]);
        }
        prop_assert!(wire.is_empty());
    }

    #[test]
    fn garbage_is_an_error_and_never_more_than_the_limit(garbage in vec(any::<u8>(), 0..2048), limit in 0_usize..4096) {
        let mut buffer = BytesMut::from(&garbage[..]);
        loop {
            let needed = missing(&buffer, limit);
            match take(&mut buffer, limit) {
                Ok(Some(frame)) => {
                    prop_assert!(frame.payload.len() <= limit.max(RAW_BYTES_MAX));
                    let _ = message::<Request>(&frame.payload);
                    let _ = message::<FileAnswer>(&frame.payload);
                    let _ = message::<RunEvent>(&frame.payload);
                }
                Ok(None) => {
                    prop_assert!(needed.expect("sound so far") <= FRAME_HEADER_BYTES + limit.max(RAW_BYTES_MAX));
                    break;
                }
                Err(_) => break,
            }
        }
    }

    #[test]
    fn a_damaged_message_is_an_error_or_another_message(word in request(), at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let mut payload = postcard::to_stdvec(&word).expect("encodes");
        let at = at.index(payload.len());
        payload[at] ^= flip;
        if let Ok(other) = message::<Request>(&payload) {
            round_trip(&other);
        }
    }
}

#[test]
fn lengths_are_judged_before_the_payload_is_there() {
    let mut wire = BytesMut::from(&[0, 0xff, 0xff, 0xff, 0xff][..]);
    assert!(matches!(
        take(&mut wire, MESSAGE_BYTES_MAX),
        Err(FrameError::TooLong { .. })
    ));
    let mut wire = BytesMut::from(&[2][..]);
    let length = u32::try_from(RAW_BYTES_MAX + 1).expect("fits");
    wire.extend_from_slice(&length.to_le_bytes());
    assert_eq!(
        take(&mut wire, MESSAGE_BYTES_MAX),
        Err(FrameError::TooLong {
            bytes: RAW_BYTES_MAX + 1,
            limit: RAW_BYTES_MAX
        })
    );
    let mut wire = BytesMut::from(&[9, 0, 0, 0, 0][..]);
    assert_eq!(take(&mut wire, 1), Err(FrameError::Tag(9)));
}

#[test]
fn bytes_after_a_message_are_refused() {
    let mut payload = postcard::to_stdvec(&WriteControl::End).expect("encodes");
    assert_eq!(message(&payload), Ok(WriteControl::End));
    payload.push(0);
    assert_eq!(
        message::<WriteControl>(&payload),
        Err(FrameError::Malformed)
    );
}

#[test]
fn a_claim_of_many_items_makes_no_room_for_them() {
    // Variant 1 (Run), then an argv that claims 2^63 items.
    let payload = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(message::<Request>(&payload), Err(FrameError::Malformed));
}

/// The place of a word is its number on the wire: a change here is a new generation.
#[test]
fn words_keep_their_numbers() {
    let first = |payload: Vec<u8>| payload[0];
    let number = |word: &RunEvent| first(postcard::to_stdvec(word).expect("encodes"));
    assert_eq!(number(&RunEvent::Started), 0);
    assert_eq!(number(&RunEvent::NotStarted(NotStarted::NotFound)), 1);
    assert_eq!(number(&RunEvent::StdinTaken(1)), 3);
    let control = |word: &RunControl| first(postcard::to_stdvec(word).expect("encodes"));
    assert_eq!(control(&RunControl::StdinEnd), 0);
    assert_eq!(control(&RunControl::Signal(9)), 3);
    let hello = postcard::to_stdvec(&Request::Hello(Hello { generation: 1 })).expect("encodes");
    assert_eq!(hello, [0, 1]);
    let welcome = Welcome {
        generation: 1,
        is_init: true,
        tree_end: TreeEnd::Keeper,
    };
    assert_eq!(postcard::to_stdvec(&welcome).expect("encodes"), [1, 1, 1]);
}
