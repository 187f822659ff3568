//! What answers on addresses that are not the Internet's: a cloud's metadata, private networks, container engines.

use crate::home::{assert_online, bridged, house, python};
use crate::world::{FORBIDDEN, World};

pub(crate) async fn no_cloud_or_private_network_is_reached(world: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    // The twin: from the host each of them is reached.
    for address in FORBIDDEN {
        world.as_root(&format!(
            "python3 -c 'import urllib.request as r; r.urlopen(\"http://{address}/\", timeout=20).read()'"
        ));
    }
    let sandbox = house.rent(&bridged()).await;
    let program = format!(
        r"
for address in {FORBIDDEN:?}:
    for port, kind in ((80, 'tcp'), (8080, 'tcp'), (53, 'udp'), (7777, 'udp'), (443, 'tcp')): refused(address, port, kind)
for address in ('0.0.0.1', '240.0.0.1', '224.0.0.1', '255.255.255.255'):
    came = reach(address, 80)
    assert came in ('EHOSTUNREACH', 'ENETUNREACH', 'EACCES', 'EINVAL', 'ECONNREFUSED'), (address, came)
print('none')
"
    );
    assert_eq!(python(&sandbox, &program).await, "none");
    assert_online(&sandbox).await;
    sandbox.end().await;
    house.close().await;
}

pub(crate) async fn no_spelling_redirect_or_answer_leads_there(_: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let sandbox = house.rent(&bridged()).await;
    let program = r"
import urllib.request, urllib.error
def fetch(url): return urllib.request.urlopen(url, timeout=8).read().decode()
def fails(url):
    try: came = fetch(url)
    except (OSError, ValueError, http.client.HTTPException): return
    raise AssertionError((url, came))
# Other spellings of 169.254.169.254, and what a parser might take for one of ours.
for name in ('2852039166', '0xa9fea9fe', '0251.0376.0251.0376', '0xa9.254.169.254', '169.254.43518', '169.254.169.254.',
             '[::ffff:169.254.169.254]', '[::ffff:a9fe:a9fe]', '[64:ff9b::a9fe:a9fe]', '[::169.254.169.254]',
             'internet.test@169.254.169.254', 'METADATA.google.internal', 'metadata.google.internal.', 'inner.test',
             'host.test', 'internet.test%00.inner.test', 'inner.test#internet.test', '127.1', '0', '0177.1', '[::]', '[::1]'):
    fails(f'http://{name}/')
# A page of the Internet that sends there.
for target in ('http://169.254.169.254/', 'http://metadata.google.internal/', 'http://10.9.9.9:8080/', 'http://192.168.77.2/'):
    fails('http://internet.test/redirect?to=' + target)
# A name that was the Internet's when it was looked at.
assert 'reached' in fetch('http://changing.test/')
fails('http://changing.test/')
# The twins.
assert 'reached' in fetch('http://internet.test/redirect?to=http://93.184.216.34:8080/')
assert 'reached' in fetch('http://INTERNET.test./')
print('nowhere')
";
    assert_eq!(python(&sandbox, program).await, "nowhere");
    sandbox.end().await;
    house.close().await;
}
