//! The two instructions that everything else is made of, per architecture.
#![expect(unsafe_code, reason = "system calls are made here, in assembly")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kernel takes and gives machine words"
)]

use std::arch::asm;
use std::ffi::c_void;

/// An int as the kernel takes it: sign-extended.
pub(crate) const fn int(value: i32) -> usize {
    value as isize as usize
}

/// The errno in a call's result.
pub(crate) const fn errno_of(result: isize) -> i32 {
    (-result) as i32
}

/// One system call. Negative errno on failure.
///
/// # Safety
/// The caller answers for what the call does to memory and to this process.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn raw(number: i64, args: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the caller's to know what the call does; the kernel keeps all registers but these.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// One system call that makes a process which goes on at `entry(arg)` on another stack.
///
/// # Safety
/// The stack that the arguments name must be fresh, 16-byte aligned at its top, and live as long as the process uses it;
/// `arg` must suit `entry`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn raw_clone(
    number: i64,
    args: [usize; 2],
    entry: unsafe extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> isize {
    let result: isize;
    // SAFETY: the child finds its stack pointer replaced by the kernel, 16-byte aligned, and never comes back here.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            in("r12") arg,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// One system call. Negative errno on failure.
///
/// # Safety
/// The caller answers for what the call does to memory and to this process.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn raw(number: i64, args: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the caller's to know what the call does; the kernel keeps all registers but x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            options(nostack),
        );
    }
    result
}

/// One system call that makes a process which goes on at `entry(arg)` on another stack.
///
/// # Safety
/// The stack that the arguments name must be fresh, 16-byte aligned at its top, and live as long as the process uses it;
/// `arg` must suit `entry`.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn raw_clone(
    number: i64,
    args: [usize; 2],
    entry: unsafe extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> isize {
    let result: isize;
    // SAFETY: the child finds its stack pointer replaced by the kernel, 16-byte aligned, and never comes back here.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x9",
            "blr x10",
            "brk 1",
            "2:",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
            in("x9") arg,
            in("x10") entry,
        );
    }
    result
}
