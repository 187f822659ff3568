//! A filter that is too tight breaks what people run, and is then switched off: what is usual works, behind every wall.

use crate::place::Place;
use std::path::Path;

/// What the host has of these, tried inside: the program, a script, what it says.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("/bin/sh", "echo $(( 6 * 7 ))", "42"),
    ("/bin/bash", "bash -c 'x=(1 2 3); echo ${#x[@]}; coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} l; echo $l'", "3\nhi"),
    ("/usr/bin/perl", "perl -e 'use Socket; socketpair(A,B,AF_UNIX,SOCK_STREAM,PF_UNSPEC) or die; syswrite(A,\"x\"); sysread(B,$y,1); print $y; exit'", "x"),
    ("/usr/bin/git", "git -c init.defaultBranch=main init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --format=%s", "x"),
    ("/usr/bin/node", "node -e \"const{execSync}=require('child_process');require('fs').mkdtempSync('/tmp/n');console.log(execSync('echo hi').toString().trim())\"", "hi"),
    ("/usr/bin/java", "mkdir j && cd j && echo 'class A{public static void main(String[] a)throws Exception{Thread t=new Thread(()->System.out.println(\"hi\"));t.start();t.join();}}' > A.java && java -Xmx64m A.java", "hi"),
    ("/usr/bin/gcc", "echo 'int main(){return 0;}' > c.c && gcc c.c -o c && ./c && echo built", "built"),
    ("/usr/bin/musl-gcc", "echo 'int puts(const char*);int main(){return puts(\"hi\") < 0;}' > m.c && musl-gcc m.c -o m && ./m && musl-gcc -static m.c -o s && ./s", "hi\nhi"),
    ("/usr/bin/tar", "mkdir t && echo x > t/f && ln -s f t/l && tar -cf t.tar t && rm -r t && tar -xf t.tar && cat t/l", "x"),
    ("/usr/bin/gdb", "gdb -batch -ex 'break main' -ex run -ex 'print 6*7' ./c 2>/dev/null | grep -c '= 42'", "1"),
    ("/usr/bin/strace", "strace -o s.txt true; grep -c execve s.txt", "1"),
    ("/usr/bin/find", "find /usr/bin -maxdepth 1 -name sh -o -maxdepth 1 -name dash | head -1 | wc -l", "1"),
    ("/usr/bin/openssl", "openssl rand -hex 4 | wc -c", "9"),
    ("/usr/bin/xz", "echo x | xz -T2 | xz -d", "x"),
    ("/usr/bin/flock", "flock lockfile echo locked", "locked"),
    ("/usr/bin/timeout", "timeout 5 sh -c 'sleep 0.01; echo in time'", "in time"),
    ("/usr/bin/setpriv", "setpriv --no-new-privs echo set", "set"),
];

pub(crate) async fn what_is_usual_works_behind_every_wall() {
    let place = Place::open_with(&[("SANDBOXD_TMPFS_SIZE", "256m")]).await;
    place.session("a").await;
    let mut met = 0;
    for (program, script, expected) in PROGRAMS {
        if !Path::new(program).exists() {
            println!("{program} is not on this host");
            continue;
        }
        let did = place.sh("a", script).await;
        assert_eq!(did.out.trim_end(), *expected, "{program}: {did:?}");
        met += 1;
    }
    assert!(met >= 5, "{met}");
    let said = place
        .python_says(
            "a",
            r"
import asyncio, concurrent.futures, ctypes, fcntl, mmap, multiprocessing, os, select, signal, socket, sqlite3, ssl, subprocess, tempfile, threading, time, uuid
with concurrent.futures.ThreadPoolExecutor(4) as pool: assert list(pool.map(abs, [-1, -2])) == [1, 2]
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1]) == [1]
q = multiprocessing.Queue(); q.put(1); assert q.get(timeout=5) == 1
async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname()); await r.read(); server.close()
    p = await asyncio.create_subprocess_exec('echo', 'x', stdout=asyncio.subprocess.PIPE); assert (await p.communicate())[0] == b'x\n'
asyncio.run(main())
d = sqlite3.connect('/workspace/db'); d.execute('pragma journal_mode=wal'); d.execute('create table t(x)'); d.execute('insert into t values(1)'); d.commit(); d.close()
with tempfile.TemporaryFile() as f: f.write(b'x'); f.flush(); m = mmap.mmap(f.fileno(), 1); assert m[0:1] == b'x'
with open('/workspace/l', 'w') as f: fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX)
e = select.epoll(); e.close(); os.memfd_create('x'); os.eventfd(0); os.pidfd_open(os.getpid())
assert os.sched_getaffinity(0) and os.cpu_count() >= 1; os.nice(1)
signal.setitimer(signal.ITIMER_REAL, 0.01); signal.signal(signal.SIGALRM, lambda *a: None); time.sleep(0.02)
a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0]); assert socket.recv_fds(b, 1, 1)[1]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
os.setxattr('/workspace/l', 'user.x', b'y'); assert os.getxattr('/workspace/l', 'user.x') == b'y'
os.mkfifo('/tmp/q'); os.symlink('/tmp/q', '/tmp/s'); os.rename('/tmp/s', '/dev/shm/../../tmp/t')
print('fine')
",
        )
        .await;
    assert_eq!(said, "fine");
    place.close().await;
}
