//! Single cases by hand; sequences of events in [`world`].

mod world;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn newcomer(name: &str, tenant: Option<&str>) -> Newcomer {
    Newcomer {
        id: id(name),
        tenant: tenant.map(|t| Tenant::parse(t).unwrap()),
        files_outside: true,
        expires: None,
        sandbox: SandboxId::generate(),
    }
}

fn ceilings(resident: u64, open: u64, per_tenant: u64, evict: Option<u64>) -> Ceilings {
    Ceilings {
        resident: Some(resident),
        open: Some(open),
        per_tenant: Some(per_tenant),
        evict_idle: evict.map(Duration::from_secs),
    }
}

/// Opens one and lets its sandbox start at once.
fn open_resident(house: &mut House, who: Newcomer, now: Duration, limits: &Ceilings) -> u64 {
    let name = who.id.clone();
    let (serial, orders) = house.open(who, now, limits).unwrap();
    assert!(matches!(orders.as_slice(), [(_, Action::Create { .. })]));
    let started = Event::Started { keeps: false };
    house.apply(&name, serial, started, now).unwrap();
    serial
}

#[test]
fn the_idle_one_used_longest_ago_makes_room_and_its_heir_waits_for_it() {
    let limits = ceilings(2, 10, 10, Some(5));
    let mut house = House::default();
    let a = open_resident(&mut house, newcomer("a", None), SECOND, &limits);
    open_resident(&mut house, newcomer("b", None), SECOND * 2, &limits);

    let (_, orders) = house
        .open(newcomer("c", None), SECOND * 8, &limits)
        .unwrap();
    assert!(matches!(orders.as_slice(), [(who, Action::Stop(_))] if *who == id("a")));
    assert_eq!(house.slots(), 2, "the newcomer holds no slot yet");

    let orders = house
        .apply(&id("a"), a, Event::Stopped { layer: false }, SECOND * 9)
        .unwrap();
    assert!(matches!(orders.as_slice(), [(who, Action::Create { .. })] if *who == id("c")));
    assert_eq!(house.slots(), 2);
}

#[test]
fn a_busy_one_and_a_recent_one_are_no_victims() {
    let limits = ceilings(1, 10, 10, Some(5));
    let mut house = House::default();
    let a = open_resident(&mut house, newcomer("a", None), SECOND, &limits);
    house.apply(&id("a"), a, Event::Enter, SECOND * 2).unwrap();
    let refused = house.open(newcomer("b", None), SECOND * 100, &limits);
    assert_eq!(refused.unwrap_err(), NoRoom::Slots(1));
    house
        .apply(&id("a"), a, Event::Leave, SECOND * 100)
        .unwrap();
    let refused = house.open(newcomer("b", None), SECOND * 102, &limits);
    assert_eq!(refused.unwrap_err(), NoRoom::Slots(1));
    house
        .open(newcomer("b", None), SECOND * 105, &limits)
        .unwrap();
}

#[test]
fn every_ceiling_is_asked_before_a_victim_is_touched() {
    let limits = ceilings(1, 2, 1, Some(0));
    let mut house = House::default();
    let a = open_resident(&mut house, newcomer("a", Some("t")), SECOND, &limits);
    house
        .apply(&id("a"), a, Event::Hibernate { heir: None }, SECOND)
        .unwrap();
    house
        .apply(&id("a"), a, Event::Stopped { layer: false }, SECOND)
        .unwrap();
    let b = open_resident(&mut house, newcomer("b", Some("u")), SECOND, &limits);
    house.apply(&id("b"), b, Event::Enter, SECOND).unwrap();

    // The open ceiling could be met by closing `a`, but the tenant's and the pool's could not.
    let before = house.clone();
    let refused = house.open(newcomer("c", Some("u")), SECOND * 2, &limits);
    assert_eq!(refused.unwrap_err(), NoRoom::Tenant(1));
    let refused = house.open(newcomer("c", Some("v")), SECOND * 2, &limits);
    assert_eq!(refused.unwrap_err(), NoRoom::Slots(1));
    assert_eq!(house, before);

    // A victim that leaves is not counted against its own tenant.
    house.apply(&id("b"), b, Event::Leave, SECOND * 2).unwrap();
    let (_, orders) = house
        .open(newcomer("c", Some("t")), SECOND * 3, &limits)
        .unwrap();
    assert!(
        orders
            .iter()
            .any(|(who, a)| *who == id("a") && matches!(a, Action::End { .. }))
    );
    assert!(
        orders
            .iter()
            .any(|(who, a)| *who == id("b") && matches!(a, Action::Stop(_)))
    );
}

#[test]
fn all_open_and_in_use_is_refused() {
    let limits = ceilings(5, 1, 5, None);
    let mut house = House::default();
    open_resident(&mut house, newcomer("a", None), SECOND, &limits);
    let refused = house.open(newcomer("b", None), SECOND, &limits);
    assert_eq!(refused.unwrap_err(), NoRoom::Open(1));
}

#[test]
fn a_fallen_one_is_healed_in_its_own_slot_and_a_lost_one_never() {
    let limits = ceilings(1, 5, 5, None);
    let mut house = House::default();
    let who = newcomer("a", None);
    let sandbox = who.sandbox.clone();
    let a = open_resident(&mut house, who, SECOND, &limits);
    house
        .apply(&id("a"), a, Event::Died(sandbox), SECOND)
        .unwrap();
    house
        .apply(&id("a"), a, Event::Stopped { layer: false }, SECOND)
        .unwrap();
    let fallen = State::Fallen { layer: None };
    assert_eq!(house.get(&id("a")).unwrap().state, fallen);
    assert_eq!(
        house
            .open(newcomer("b", None), SECOND, &limits)
            .unwrap_err(),
        NoRoom::Slots(1)
    );
    let orders = house
        .wake(&id("a"), SandboxId::generate(), SECOND, &limits)
        .unwrap();
    assert!(matches!(orders.as_slice(), [(_, Action::Create { .. })]));

    let mut house = House::default();
    let mut who = newcomer("a", None);
    who.files_outside = false;
    let sandbox = who.sandbox.clone();
    let a = open_resident(&mut house, who, SECOND, &limits);
    house
        .apply(&id("a"), a, Event::Died(sandbox), SECOND)
        .unwrap();
    assert_eq!(house.get(&id("a")).unwrap().state, State::Lost);
    let woken = house.wake(&id("a"), SandboxId::generate(), SECOND, &limits);
    assert_eq!(woken.unwrap_err(), NoRoom::Session(Refusal::Lost));
    assert_eq!(
        house.apply(&id("a"), a, Event::Enter, SECOND).unwrap_err(),
        NoStep::Refused(Refusal::Lost)
    );
    assert_eq!(house.slots(), 0);
}

#[test]
fn a_layer_that_can_be_kept_outlives_a_death_also_where_nothing_is_stored() {
    let limits = ceilings(1, 5, 5, None);
    let mut house = House::default();
    let mut who = newcomer("a", None);
    who.files_outside = false;
    let sandbox = who.sandbox.clone();
    let (a, _) = house.open(who, SECOND, &limits).unwrap();
    let mut apply = |event| house.apply(&id("a"), a, event, SECOND).unwrap();
    apply(Event::Started { keeps: true });
    let orders = apply(Event::Died(sandbox.clone()));
    assert_eq!(orders, vec![(id("a"), Action::Stop(sandbox.clone()))]);
    apply(Event::Stopped { layer: true });
    let orders = house
        .wake(&id("a"), SandboxId::generate(), SECOND, &limits)
        .unwrap();
    let create = Action::Create {
        sandbox: sandbox.clone(),
        layer: true,
    };
    assert_eq!(orders, vec![(id("a"), create)]);
    // Kept badly, it is lost, and not an empty one in its place.
    let mut apply = |event| house.apply(&id("a"), a, event, SECOND).unwrap();
    apply(Event::Started { keeps: true });
    apply(Event::Hibernate { heir: None });
    apply(Event::Stopped { layer: false });
    assert_eq!(house.get(&id("a")).unwrap().state, State::Lost);
}

#[test]
fn the_daemons_end_takes_sandboxes_and_leaves_sessions() {
    let limits = ceilings(5, 5, 5, None);
    let mut house = House::default();
    let who = newcomer("a", None);
    let sandbox = who.sandbox.clone();
    let a = open_resident(&mut house, who, SECOND, &limits);
    let orders = house.apply(&id("a"), a, Event::Suspend, SECOND).unwrap();
    assert_eq!(orders, vec![(id("a"), Action::Suspend(sandbox))]);
    // One that nobody has heard of goes, and one that sleeps is left alone.
    let (b, _) = house.open(newcomer("b", None), SECOND, &limits).unwrap();
    let orders = house.apply(&id("b"), b, Event::Suspend, SECOND).unwrap();
    assert!(matches!(
        orders.as_slice(),
        [(_, Action::End { purge: false, .. })]
    ));
    let c = open_resident(&mut house, newcomer("c", None), SECOND, &limits);
    for event in [
        Event::Hibernate { heir: None },
        Event::Stopped { layer: false },
    ] {
        house.apply(&id("c"), c, event, SECOND).unwrap();
    }
    assert_eq!(
        house.apply(&id("c"), c, Event::Suspend, SECOND),
        Err(NoStep::Refused(Refusal::Asleep))
    );
}

#[test]
fn what_an_earlier_session_of_the_same_id_left_running_changes_nothing() {
    let limits = ceilings(5, 5, 5, None);
    let mut house = House::default();
    let first = open_resident(&mut house, newcomer("a", None), SECOND, &limits);
    house.apply(&id("a"), first, Event::Enter, SECOND).unwrap();
    house
        .apply(
            &id("a"),
            first,
            Event::Close(Why::Delete { purge: false }),
            SECOND,
        )
        .unwrap();
    house.apply(&id("a"), first, Event::Closed, SECOND).unwrap();
    let second = open_resident(&mut house, newcomer("a", None), SECOND, &limits);
    assert_ne!(first, second);
    assert_eq!(
        house
            .apply(&id("a"), first, Event::Leave, SECOND)
            .unwrap_err(),
        NoStep::Unknown
    );
}

#[test]
fn a_session_ends_when_its_time_is_over_whatever_it_does_and_not_before() {
    let limits = ceilings(5, 5, 5, None);
    let mut house = House::default();
    let mut who = newcomer("a", None);
    who.expires = Some(SECOND * 10);
    let a = open_resident(&mut house, who, SECOND, &limits);
    house.apply(&id("a"), a, Event::Enter, SECOND * 2).unwrap();
    let over = Event::Close(Why::Expired);
    let refused = house.apply(&id("a"), a, over.clone(), SECOND * 9);
    assert_eq!(refused.unwrap_err(), NoStep::Refused(Refusal::Recent));

    let expires = Some(SECOND * 20);
    let renewed = house.apply(&id("a"), a, Event::Renew { expires }, SECOND * 9);
    assert_eq!(renewed.unwrap(), Orders::new());
    let refused = house.apply(&id("a"), a, over.clone(), SECOND * 19);
    assert_eq!(refused.unwrap_err(), NoStep::Refused(Refusal::Recent));
    let orders = house.apply(&id("a"), a, over.clone(), SECOND * 20).unwrap();
    assert!(matches!(
        orders.as_slice(),
        [(_, Action::End { purge: false, .. })]
    ));
    let late = house.apply(&id("a"), a, Event::Renew { expires: None }, SECOND * 21);
    assert_eq!(late.unwrap_err(), NoStep::Refused(Refusal::Closing));

    let b = open_resident(&mut house, newcomer("b", None), SECOND, &limits);
    let never = house.apply(&id("b"), b, over, SECOND * 1_000_000);
    assert_eq!(never.unwrap_err(), NoStep::Refused(Refusal::Recent));
}

#[test]
fn a_clock_that_is_set_makes_nothing_older_or_younger() {
    let limits = ceilings(5, 5, 5, None);
    let mut house = House::default();
    let start = SECOND * 1_000_000;
    let mut who = newcomer("a", None);
    who.expires = Some(start + SECOND * 60);
    let a = open_resident(&mut house, who, start, &limits);
    let b = open_resident(&mut house, newcomer("b", None), start, &limits);
    let sleep = Event::Hibernate { heir: None };
    house.apply(&id("b"), b, sleep, start).unwrap();
    let stopped = Event::Stopped { layer: false };
    house.apply(&id("b"), b, stopped, start).unwrap();

    let hours = SECOND * 7_200;
    for (shift, now) in [
        (Shift::Forward(hours), start + hours + SECOND * 30),
        (Shift::Back(hours), start - hours + SECOND * 30),
        (Shift::Back(start), SECOND * 30),
    ] {
        let mut house = house.clone();
        house.shift(shift, now);
        let rental = house.get(&id("a")).unwrap();
        assert_eq!(rental.idle(now), SECOND * 30, "{shift:?}");
        for (serial, name, than, dead) in [
            (a, "a", 29, true),
            (a, "a", 31, false),
            (b, "b", 30, true),
            (b, "b", 31, false),
        ] {
            let than = SECOND * than;
            let mut house = house.clone();
            let reaped = house.apply(&id(name), serial, Event::Close(Why::Idle { than }), now);
            assert_eq!(reaped.is_ok(), dead, "{shift:?} {name} {than:?}");
        }
        for (later, over) in [(29, false), (30, true)] {
            let mut house = house.clone();
            let over_now = house.apply(
                &id("a"),
                a,
                Event::Close(Why::Expired),
                now + SECOND * later,
            );
            assert_eq!(over_now.is_ok(), over, "{shift:?} {later}");
        }
    }
}
