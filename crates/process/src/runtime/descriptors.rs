//! Files that this process was started with.

use std::fs;
use std::os::fd::BorrowedFd;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// The first descriptor that is none of the standard ones.
const FIRST: i32 = 3;

/// Keeps the programs that this process starts from inheriting the files that it was itself started with, except the
/// standard ones: otherwise a daemon would hold a lock or a pipe of the script that started it for as long as it runs.
/// Files that this process opens itself are not inherited in any case.
#[expect(unsafe_code, reason = "descriptors of unknown files are known by their number only")]
pub fn keep_from_children() {
    let listed = fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number >= FIRST) {
        // SAFETY: only a flag is set that this process never acts upon; a descriptor that was closed is an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        // A descriptor that is closed by now, such as that of the listed directory, is an error here, and no matter.
        fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_a_starter_left_open_is_not_passed_on() {
        let file = File::open("/dev/null").unwrap();
        let flags = |file: &File| FdFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFD).unwrap());
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        keep_from_children();
        assert_eq!(flags(&file), FdFlag::FD_CLOEXEC);
        let standard = fcntl(io::stderr().as_fd(), FcntlArg::F_GETFD).unwrap();
        assert_eq!(FdFlag::from_bits_retain(standard), FdFlag::empty());
    }
}
