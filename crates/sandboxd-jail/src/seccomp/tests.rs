//! Runs the generated program in a small model of the kernel's machine and compares its verdicts with the list.

use super::*;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Allow,
    Errno(u32),
    Kill,
}

fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> Verdict {
    let mut data = Vec::new();
    data.extend(number.to_le_bytes());
    data.extend(architecture.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    for argument in arguments {
        data.extend(argument.to_le_bytes());
    }
    let mut accumulator = 0_u32;
    let mut at = 0;
    loop {
        let i = program[at];
        let jump = |holds: bool| usize::from(if holds { i.jump_true } else { i.jump_false });
        at += 1 + match i.code {
            LOAD => {
                let from = usize::try_from(i.operand).unwrap();
                accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                0
            }
            JUMP => usize::try_from(i.operand).unwrap(),
            JUMP_EQUAL => jump(accumulator == i.operand),
            JUMP_AT_LEAST => jump(accumulator >= i.operand),
            JUMP_SET => jump(accumulator & i.operand != 0),
            RETURN => {
                return match i.operand & 0xffff_0000 {
                    RETURN_ALLOW => Verdict::Allow,
                    RETURN_ERRNO => Verdict::Errno(i.operand & 0xffff),
                    RETURN_KILL => Verdict::Kill,
                    other => panic!("unknown return {other:x}"),
                };
            }
            code => panic!("unknown instruction {code:x}"),
        };
    }
}

fn call(number: i64, arguments: [u64; 6]) -> Verdict {
    run(
        &program(false, false),
        ARCHITECTURE,
        u32::try_from(number).unwrap(),
        arguments,
    )
}

fn first(value: u64) -> [u64; 6] {
    [value, 0, 0, 0, 0, 0]
}

#[test]
fn every_number_has_the_verdict_of_the_list() {
    let program = program(false, false);
    let rules = list::rules();
    for number in (0..700).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
        let expected = match rules.iter().find(|rule| rule.0 == number) {
            None => Verdict::Errno(u32::from(ENOSYS)),
            Some((_, Action::Allow)) => Verdict::Allow,
            Some((_, Action::Errno(errno))) => Verdict::Errno(u32::from(*errno)),
            Some((_, Action::Check(_))) => continue,
        };
        let found = run(&program, ARCHITECTURE, number, [0; 6]);
        assert_eq!(found, expected, "system call {number}");
    }
}

#[test]
fn no_call_is_listed_twice_and_every_group_has_a_reason() {
    let mut numbers: Vec<u32> = list::rules().iter().map(|rule| rule.0).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(all, numbers.len());
    for group in list::GROUPS.iter().chain(list::ARCHITECTURE_GROUPS) {
        assert!(group.reason.len() > 10, "{group:?}");
    }
}

#[test]
fn a_foreign_architecture_is_ended() {
    assert_eq!(
        run(&program(false, false), 0x4000_0003, 1, [0; 6]),
        Verdict::Kill
    );
}

#[test]
fn namespaces_cannot_be_made() {
    for flag in [
        0x0002_0000,
        0x0200_0000,
        0x0400_0000,
        0x0800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
    ] {
        assert_eq!(call(libc::SYS_clone, first(flag | 17)), Verdict::Errno(1));
    }
    assert_eq!(call(libc::SYS_clone, first(17)), Verdict::Allow);
    assert_eq!(call(libc::SYS_clone, first(0x003d_0f00)), Verdict::Allow);
    assert_eq!(call(libc::SYS_clone3, [0; 6]), Verdict::Errno(38));
    let with = program(true, false);
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap();
    assert_eq!(run(&with, ARCHITECTURE, clone3, [0; 6]), Verdict::Allow);
}

#[test]
fn sockets_are_of_the_families_and_protocols_that_have_a_use() {
    for number in [libc::SYS_socket, libc::SYS_socketpair] {
        let socket = |family: u64, protocol: u64| call(number, [family, 1, protocol, 0, 0, 0]);
        for family in [1, 2, 10] {
            assert_eq!(socket(family, 0), Verdict::Allow);
        }
        for internet in [2, 10] {
            for protocol in [1, 6, 17, 58, 136, 262] {
                assert_eq!(socket(internet, protocol), Verdict::Allow);
            }
            // DCCP, GRE, L2TP, SCTP, raw, and none.
            for protocol in [33, 47, 115, 132, 255, 0xffff_ffff] {
                assert_eq!(socket(internet, protocol), Verdict::Errno(93));
            }
        }
        assert_eq!(socket(16, 0), Verdict::Allow);
        for netlink in [9, 12, 15] {
            assert_eq!(socket(16, netlink), Verdict::Errno(97));
        }
        // Packet, algorithm, virtual machine, Bluetooth, CAN, key, and a cluster's, which makes pairs.
        for family in [17, 38, 40, 31, 29, 15, 30] {
            assert_eq!(socket(family, 0), Verdict::Errno(97));
        }
    }
}

#[test]
fn terminals_cannot_be_typed_into() {
    let request = |value: u64| call(libc::SYS_ioctl, [0, value, 0, 0, 0, 0]);
    assert_eq!(request(0x5412), Verdict::Errno(1));
    // The kernel looks at 32 bits of the request only.
    assert_eq!(request(0xffff_ffff_0000_5412), Verdict::Errno(1));
    assert_eq!(request(0x541c), Verdict::Errno(1));
    assert_eq!(request(0x5423), Verdict::Errno(1));
    assert_eq!(request(0x5401), Verdict::Allow);
}

#[test]
fn personalities_keep_address_space_protection() {
    assert_eq!(
        call(libc::SYS_personality, first(0xffff_ffff)),
        Verdict::Allow
    );
    assert_eq!(call(libc::SYS_personality, first(0)), Verdict::Allow);
    assert_eq!(
        call(libc::SYS_personality, first(0x0040_0000)),
        Verdict::Errno(1)
    );
}

#[test]
fn the_limit_of_core_files_is_not_theirs() {
    let done_not = Verdict::Errno(0);
    assert_eq!(call(libc::SYS_setrlimit, first(4)), done_not);
    assert_eq!(call(libc::SYS_setrlimit, first(7)), Verdict::Allow);
    let both = |resource, new: u64| call(libc::SYS_prlimit64, [0, resource, new, 8, 0, 0]);
    assert_eq!(both(4, 0x1000), done_not);
    assert_eq!(both(4, 0x1_0000_0000), done_not);
    assert_eq!(both(4, 0), Verdict::Allow);
    assert_eq!(both(7, 0x1000), Verdict::Allow);
}

#[test]
fn the_filter_stays_short() {
    assert!(
        program(true, true).len() < 400,
        "{}",
        program(true, true).len()
    );
}

#[test]
fn where_files_are_a_host_users_none_is_made_set_uid() {
    let plain = program(true, true);
    let verdict = |number: i64, arguments| {
        let number = u32::try_from(number).unwrap();
        assert_eq!(
            run(&program(true, false), ARCHITECTURE, number, arguments),
            Verdict::Allow
        );
        run(&plain, ARCHITECTURE, number, arguments)
    };
    for &(number, mode, flags) in list::MODE_CALLS {
        let with = |bits: u64, makes: u64| {
            let mut arguments = [0; 6];
            arguments[usize::try_from(mode).unwrap()] = bits;
            if let Some(flags) = flags {
                arguments[usize::try_from(flags).unwrap()] = makes;
            }
            arguments
        };
        for makes in [0o100, 0o20_200_000] {
            assert_eq!(
                verdict(number, with(0o4755, makes)),
                Verdict::Errno(1),
                "{number}"
            );
            assert_eq!(
                verdict(number, with(0o2755, makes)),
                Verdict::Errno(1),
                "{number}"
            );
            assert_eq!(
                verdict(number, with(0o1777, makes)),
                Verdict::Allow,
                "{number}"
            );
        }
        if flags.is_some() {
            // What is no mode is not looked at.
            assert_eq!(verdict(number, with(0o6777, 0)), Verdict::Allow, "{number}");
        }
    }
}
