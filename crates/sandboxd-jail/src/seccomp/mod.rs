//! The system call filter: a reviewed list ([`list`]), and the generator that turns it into a program for the kernel.
//!
//! What is allowed is listed with a reason per group; what is known and dangerous is refused with `EPERM`; everything
//! that the list does not know is answered `ENOSYS`, so that programs fall back as they would on an older kernel. Calls
//! of another architecture end the process.
//!
//! The kernel runs a new filter once per system call number to fill its cache of always-allowed calls, so the price of
//! installing one grows with its length. A binary search over ranges of numbers is an order of magnitude shorter than a
//! list of comparisons.

pub mod list;

/// One instruction of the kernel's filter machine (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip where the comparison holds.
    pub jump_true: u8,
    /// Instructions to skip where it does not.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// What happens to a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is done.
    Allow,
    /// It fails with this error.
    Errno(u16),
    /// It depends on its arguments.
    Check(Check),
}

/// Calls that depend on their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// `clone` without a new namespace.
    CloneFlags,
    /// `socket` and `socketpair` of the families and protocols that programs need.
    SocketFamily,
    /// `ioctl` but for what changes a terminal under those who share it.
    IoctlRequest,
    /// `setrlimit` of anything but core files, whose limit is ours: that one is not done, and said to be.
    SetLimit,
    /// `prlimit64`, likewise; reading is allowed.
    SetOrGetLimit,
    /// `personality` that only asks, or sets one of the harmless values.
    Personality,
    /// A call with a file's mode: without set-uid and set-gid.
    PlainMode {
        /// Which argument the mode is.
        mode: u32,
        /// Which argument says whether there is a mode at all.
        flags: Option<u32>,
    },
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP_SET: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K

const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_ERRNO: u32 = 0x0005_0000;
const RETURN_KILL: u32 = 0x8000_0000;

// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// `AUDIT_ARCH_*` of the architecture this was compiled for.
pub const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else {
    0xc000_00b7
};

const ENOSYS: u16 = 38;
const EPERM: u16 = 1;
const EAFNOSUPPORT: u16 = 97;
const EPROTONOSUPPORT: u16 = 93;

/// The filter's instructions. `clone3` says whether that call, whose flags a filter cannot see, is allowed: it may be
/// only where the sandbox cannot make namespaces anyway. With `plain_modes` no call makes a file set-uid or set-gid, but
/// `openat2`, whose mode a filter cannot see either: the guest keeps it from its runs.
pub fn program(clone3: bool, plain_modes: bool) -> Vec<Instruction> {
    let mut rules = list::rules();
    if plain_modes {
        for (number, action) in &mut rules {
            let call = list::MODE_CALLS
                .iter()
                .find(|call| call.0 == i64::from(*number));
            if let Some(&(_, mode, flags)) = call {
                *action = Action::Check(Check::PlainMode { mode, flags });
            }
        }
    }
    if clone3 {
        rules.push((list::CLONE3, Action::Allow));
    }
    rules.sort_unstable_by_key(|rule| rule.0);
    let mut program = vec![
        load(ARCHITECTURE_AT),
        branch(JUMP_EQUAL, ARCHITECTURE, 1, 0),
        give(RETURN_KILL),
        load(NUMBER_AT),
    ];
    program.extend(search(&ranges(&rules)));
    program
}

/// Turns sorted rules into runs of equal action that cover every number; gaps are `ENOSYS`.
fn ranges(rules: &[(u32, Action)]) -> Vec<(u32, Action)> {
    let mut ranges = vec![(0, Action::Errno(ENOSYS))];
    let mut next = 0;
    let mut push = |start: u32, action: Action| match ranges.last_mut() {
        Some((_, last)) if *last == action && !matches!(action, Action::Check(_)) => {}
        Some((at, last)) if *at == start => *last = action,
        _ => ranges.push((start, action)),
    };
    for &(number, action) in rules {
        if number > next {
            push(next, Action::Errno(ENOSYS));
        }
        push(number, action);
        next = number + 1;
    }
    push(next, Action::Errno(ENOSYS));
    ranges
}

fn search(ranges: &[(u32, Action)]) -> Vec<Instruction> {
    match ranges {
        [] => vec![give(RETURN_ERRNO | u32::from(ENOSYS))],
        [(_, action)] => leaf(*action),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let start = high[0].0;
            let below = search(low);
            let mut code = match u8::try_from(below.len()) {
                Ok(skip) => vec![branch(JUMP_AT_LEAST, start, skip, 0)],
                Err(_) => vec![
                    branch(JUMP_AT_LEAST, start, 0, 1),
                    Instruction {
                        code: JUMP,
                        jump_true: 0,
                        jump_false: 0,
                        operand: u32::try_from(below.len()).unwrap_or(u32::MAX),
                    },
                ],
            };
            code.extend(below);
            code.extend(search(high));
            code
        }
    }
}

fn leaf(action: Action) -> Vec<Instruction> {
    match action {
        Action::Allow => vec![give(RETURN_ALLOW)],
        Action::Errno(errno) => vec![give(RETURN_ERRNO | u32::from(errno))],
        Action::Check(check) => checked(check),
    }
}

/// The low half of a call's argument (both architectures are little-endian).
fn argument(index: u32) -> Instruction {
    load(ARGUMENTS_AT + index * 8)
}

fn checked(check: Check) -> Vec<Instruction> {
    let mut code = Vec::new();
    match check {
        Check::CloneFlags => {
            code.push(argument(0));
            code.push(branch(JUMP_SET, list::NAMESPACE_FLAGS, 1, 0));
            code.push(give(RETURN_ALLOW));
            code.push(give(RETURN_ERRNO | u32::from(EPERM)));
        }
        Check::SocketFamily => socket_family(&mut code),
        Check::IoctlRequest => {
            code.push(argument(1));
            refuse_values(&mut code, list::IOCTLS_REFUSED);
        }
        Check::SetLimit => {
            code.push(argument(0));
            code.push(branch(JUMP_EQUAL, list::RLIMIT_CORE, 1, 0));
            code.push(give(RETURN_ALLOW));
            code.push(give(RETURN_ERRNO));
        }
        Check::SetOrGetLimit => {
            code.push(argument(1));
            code.push(branch(JUMP_EQUAL, list::RLIMIT_CORE, 0, 4));
            // A pointer to a new limit: it is null where both its halves are.
            code.push(argument(2));
            code.push(branch(JUMP_EQUAL, 0, 0, 3));
            code.push(load(ARGUMENTS_AT + 2 * 8 + 4));
            code.push(branch(JUMP_EQUAL, 0, 0, 1));
            code.push(give(RETURN_ALLOW));
            code.push(give(RETURN_ERRNO));
        }
        Check::PlainMode { mode, flags } => {
            if let Some(flags) = flags {
                code.push(argument(flags));
                code.push(branch(JUMP_SET, list::OPEN_MAKES, 0, 2));
            }
            code.push(argument(mode));
            code.push(branch(JUMP_SET, list::SET_ID_BITS, 1, 0));
            code.push(give(RETURN_ALLOW));
            code.push(give(RETURN_ERRNO | u32::from(EPERM)));
        }
        Check::Personality => {
            code.push(argument(0));
            let values = list::PERSONALITIES;
            for (at, value) in values.iter().enumerate() {
                let skip = u8::try_from(values.len() - at).unwrap_or(u8::MAX);
                code.push(branch(JUMP_EQUAL, *value, skip, 0));
            }
            code.push(give(RETURN_ERRNO | u32::from(EPERM)));
            code.push(give(RETURN_ALLOW));
        }
    }
    code
}

/// By family, then by protocol: local sockets of any, netlink of routes, internet of the few that are listed.
fn socket_family(code: &mut Vec<Instruction>) {
    code.push(argument(0));
    code.push(branch(JUMP_EQUAL, list::AF_UNIX, 0, 1));
    code.push(give(RETURN_ALLOW));
    code.push(branch(JUMP_EQUAL, list::AF_NETLINK, 0, 4));
    code.push(argument(2));
    code.push(branch(JUMP_EQUAL, list::NETLINK_ROUTE, 0, 1));
    code.push(give(RETURN_ALLOW));
    code.push(give(RETURN_ERRNO | u32::from(EAFNOSUPPORT)));
    let internet = list::INTERNET_FAMILIES;
    for (at, family) in internet.iter().enumerate() {
        // To the protocols, which stand behind the remaining families and their refusal.
        let skip = u8::try_from(internet.len() - at).unwrap_or(u8::MAX);
        code.push(branch(JUMP_EQUAL, *family, skip, 0));
    }
    code.push(give(RETURN_ERRNO | u32::from(EAFNOSUPPORT)));
    code.push(argument(2));
    let protocols = list::INTERNET_PROTOCOLS;
    for (at, protocol) in protocols.iter().enumerate() {
        let skip = u8::try_from(protocols.len() - at).unwrap_or(u8::MAX);
        code.push(branch(JUMP_EQUAL, *protocol, skip, 0));
    }
    code.push(give(RETURN_ERRNO | u32::from(EPROTONOSUPPORT)));
    code.push(give(RETURN_ALLOW));
}

fn refuse_values(code: &mut Vec<Instruction>, values: &[u32]) {
    for (at, value) in values.iter().enumerate() {
        let skip = u8::try_from(values.len() - at).unwrap_or(u8::MAX);
        code.push(branch(JUMP_EQUAL, *value, skip, 0));
    }
    code.push(give(RETURN_ALLOW));
    code.push(give(RETURN_ERRNO | u32::from(EPERM)));
}

const fn load(offset: u32) -> Instruction {
    Instruction {
        code: LOAD,
        jump_true: 0,
        jump_false: 0,
        operand: offset,
    }
}

const fn give(value: u32) -> Instruction {
    Instruction {
        code: RETURN,
        jump_true: 0,
        jump_false: 0,
        operand: value,
    }
}

const fn branch(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        operand,
    }
}

#[cfg(test)]
mod tests;
