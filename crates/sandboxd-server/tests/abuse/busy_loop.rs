//! CPU without end: weight shares it, a ceiling bounds it.

use crate::town::{BAD, GOOD, Town, is_root};
use sandboxd_server::sessions::RunDone;
use std::time::Duration;

/// Uses as many processors as it sees for so many seconds; the CPU seconds that it got, of all its processes.
fn busy(processes: u32, seconds: f64) -> String {
    format!(
        "import os, resource, time\n\
         end = time.time() + {seconds}\n\
         os.sched_setaffinity(0, range(os.cpu_count() or 1))\n\
         for _ in range({processes}):\n\
         \x20   if os.fork() == 0:\n\
         \x20       while time.time() < end: pass\n\
         \x20       os._exit(0)\n\
         for _ in range({processes}): os.wait()\n\
         used = resource.getrusage(resource.RUSAGE_CHILDREN)\n\
         print(used.ru_utime + used.ru_stime)\n"
    )
}

fn seconds(ran: &sandboxd_server::sessions::Ran) -> f64 {
    match &ran.done {
        RunDone::Finished {
            code: 0, stdout, ..
        } => String::from_utf8_lossy(stdout).trim().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hard_ceiling_holds_beside_a_weight() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("cpus", "0.5"), ("cpu_shares", "4096")]).await;
    let neighbour = town.neighbour();
    let program = busy(2, 2.0);
    let used = seconds(&town.python(&program, Duration::from_secs(60)).await);
    // Half a processor for two seconds, a period of the kernel's more or less at each end.
    assert!(used < 1.5, "{used} s of CPU at half a processor for 2 s");
    neighbour.was_well().await;
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_ceiling_one_may_take_every_processor_and_several_share_by_weight() {
    if !is_root() {
        return;
    }
    // Both weigh the same; one has four times as many processes, which gains it nothing beside the other.
    let town = Town::found(&[("cpus", ""), ("cpu_shares", "1024")]).await;
    let processors = std::thread::available_parallelism().unwrap().get();
    assert_eq!(town.says("nproc").await.trim(), processors.to_string());
    let many = u32::try_from(processors).unwrap();
    let (few, more) = (busy(many, 4.0), busy(many * 4, 4.0));
    let time = Duration::from_secs(120);
    let (one, other) = tokio::join!(
        town.python_in(BAD, &more, time),
        town.python_in(GOOD, &few, time)
    );
    let (one, other) = (seconds(&one), seconds(&other));
    assert!(
        one < 2.5 * other && other < 2.5 * one,
        "{one} s and {other} s of CPU at the same weight"
    );
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_weighs_more_gets_more() {
    if !is_root() {
        return;
    }
    let runtimes = "host=host,heavy=host;cpu_shares=4096,light=host;cpu_shares=256";
    let town = Town::found(&[("cpus", ""), ("runtimes", runtimes)]).await;
    town.open_as("heavy", "heavy").await;
    town.open_as("light", "light").await;
    let processors = std::thread::available_parallelism().unwrap().get();
    let program = busy(u32::try_from(processors).unwrap() * 2, 4.0);
    let time = Duration::from_secs(120);
    let (heavy, light) = tokio::join!(
        town.python_in("heavy", &program, time),
        town.python_in("light", &program, time)
    );
    let (heavy, light) = (seconds(&heavy), seconds(&light));
    // Sixteen times the weight; both begin and end alone for a moment.
    assert!(heavy > 2.0 * light, "{heavy} s and {light} s of CPU");
    town.close().await;
}
