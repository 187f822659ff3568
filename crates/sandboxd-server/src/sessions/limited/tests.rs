use super::*;

fn exit(code: u8, signal: Option<u8>, ended: Ended) -> Exit {
    Exit {
        code,
        signal,
        ended,
        discarded_bytes: 0,
    }
}

fn counted(memory: u64, pids: u64) -> Hits {
    Hits {
        memory_kills: Some(memory),
        process_refusals: Some(pids),
    }
}

fn meanwhile(memory: u64, pids: u64) -> Meanwhile {
    Meanwhile {
        before: counted(3, 7),
        after: counted(3 + memory, 7 + pids),
        overfilled: false,
    }
}

fn killed_for(exit: Exit, meanwhile: Meanwhile) -> Option<Limit> {
    Limited::of(RunEnd::Exited(&exit), meanwhile).killed_for
}

#[test]
fn a_kill_is_for_memory_only_while_the_kernel_counts_one() {
    let killed = exit(137, Some(9), Ended::Itself);
    assert_eq!(killed_for(killed, meanwhile(1, 0)), Some(Limit::Memory));
    assert_eq!(killed_for(killed, meanwhile(0, 0)), None);
    // A shell that tells of its child.
    let told = exit(137, None, Ended::Itself);
    assert_eq!(killed_for(told, meanwhile(1, 0)), Some(Limit::Memory));
    // A host that counts nothing tells nothing.
    assert_eq!(killed_for(killed, Meanwhile::default()), None);
    // The guest's own count.
    let counted = exit(137, Some(9), Ended::Memory);
    assert_eq!(killed_for(counted, meanwhile(0, 0)), Some(Limit::Memory));
}

#[test]
fn a_kill_of_somebody_else_is_only_said_to_have_happened() {
    for ended in [
        exit(0, None, Ended::Itself),
        exit(1, None, Ended::Itself),
        exit(143, Some(15), Ended::Itself),
    ] {
        let limited = Limited::of(RunEnd::Exited(&ended), meanwhile(1, 0));
        assert_eq!(limited.killed_for, None, "{ended:?}");
        assert_eq!(limited.reached, [Limit::Memory], "{ended:?}");
    }
}

#[test]
fn a_refused_process_is_the_reason_of_a_run_that_failed() {
    let failed = exit(1, None, Ended::Itself);
    assert_eq!(killed_for(failed, meanwhile(0, 2)), Some(Limit::Pids));
    let well = Limited::of(
        RunEnd::Exited(&exit(0, None, Ended::Itself)),
        meanwhile(0, 2),
    );
    assert_eq!((well.killed_for, well.reached), (None, vec![Limit::Pids]));
    // The deadline ended it; what it ran into meanwhile is said beside.
    let late = Limited::of(
        RunEnd::Exited(&exit(137, Some(9), Ended::Timeout)),
        meanwhile(0, 2),
    );
    assert_eq!(late.killed_for, Some(Limit::Time));
    assert_eq!(late.reached, [Limit::Pids, Limit::Time]);
    let again = rustix::io::Errno::AGAIN.raw_os_error();
    let refused = NotStarted::Resources(again);
    let unborn = Limited::of(RunEnd::NotStarted(&refused), meanwhile(0, 1));
    assert_eq!(unborn.killed_for, Some(Limit::Pids));
}

#[test]
fn no_room_is_the_reason_of_a_run_that_failed_and_nothing_else_explains() {
    let full = exit(1, None, Ended::Disk);
    assert_eq!(killed_for(full, meanwhile(0, 0)), Some(Limit::Disk));
    let too_long = exit(153, Some(25), Ended::Itself);
    assert_eq!(killed_for(too_long, meanwhile(0, 0)), Some(Limit::Disk));
    let both = Limited::of(RunEnd::Exited(&full), meanwhile(0, 1));
    assert_eq!(both.killed_for, Some(Limit::Pids));
    assert_eq!(both.reached, [Limit::Pids, Limit::Disk]);
    // Ended from outside because what is stored grew.
    let over = Meanwhile {
        overfilled: true,
        ..meanwhile(0, 0)
    };
    assert_eq!(
        killed_for(exit(137, Some(9), Ended::Stopped), over),
        Some(Limit::Disk)
    );
}

#[test]
fn time_and_output_are_what_the_guest_says_or_failed_to_keep() {
    let none = meanwhile(0, 0);
    let late = exit(137, Some(9), Ended::Timeout);
    assert_eq!(killed_for(late, none), Some(Limit::Time));
    let loud = exit(137, Some(9), Ended::Output);
    assert_eq!(killed_for(loud, none), Some(Limit::Output));
    assert_eq!(
        Limited::of(RunEnd::Overdue, none).killed_for,
        Some(Limit::Time)
    );
    assert_eq!(
        Limited::of(RunEnd::Flooded, none).killed_for,
        Some(Limit::Output)
    );
    let stopped = exit(143, Some(15), Ended::Stopped);
    assert_eq!(
        Limited::of(RunEnd::Exited(&stopped), none),
        Limited::default()
    );
    assert_eq!(Limited::of(RunEnd::Stopped, none), Limited::default());
}
