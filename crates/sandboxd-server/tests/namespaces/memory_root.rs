//! A root in memory: what needs a file system of its own then, and what does not.

use crate::rented::{House, host, is_root};

#[tokio::test]
async fn a_directory_of_the_root_in_memory_is_as_good_as_a_file_system_of_its_own() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    // Of its own are: root, /proc, /dev/pts, /dev/mqueue, /dev/shm, /tmp; over a layer that is kept /dev and /sys as well,
    // and not the root.
    for (keeps, own) in [(false, "6"), (true, "7")] {
        let mut spec = host();
        spec.tmpfs_bytes = Some(1 << 20);
        spec.keep_layer = keeps;
        let sandbox = house.rent(&spec).await;
        let kinds = "sed -n 's/.* \\([0-9]*:[0-9]*\\) .* - \\(tmpfs\\|proc\\|devpts\\|mqueue\\) .*/\\1/p' /proc/self/mountinfo | sort -u | wc -l";
        assert_eq!(sandbox.says(kinds).await, own, "{keeps}");
        for bad in [
            "touch /sys/new",
            "echo 0-99 > /sys/devices/system/cpu/online",
            "rm /sys/devices/system/cpu/possible",
            "mkdir /sys/firmware/new",
            "rmdir /sys/firmware",
            "mv /sys /sys2",
            "mv /dev /dev2",
            "umount /sys",
            "mount -o remount,rw /sys",
            "cp /bin/true /dev/true && /dev/true",
            "mknod /dev/mem c 1 1",
        ] {
            let did = sandbox.sh(bad).await;
            assert_ne!(did.exit.code, 0, "{bad}: {did:?}");
        }
        assert_eq!(
            sandbox
                .says("ls -A /sys/firmware; cd /sys/devices/system/cpu && cmp online possible && cmp online present && echo same")
                .await,
            "same"
        );
        assert_eq!(
            sandbox
                .says("nproc; ls -d /sys/devices/system/cpu/cpu* | wc -l")
                .await
                .lines()
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            1
        );
        // The twins.
        assert_eq!(
            sandbox
                .says("touch /dev/shm/a /tmp/a /etc/a && echo x > /dev/null && echo fine")
                .await,
            "fine"
        );
        sandbox.end().await;
    }
    house.close().await;
}
