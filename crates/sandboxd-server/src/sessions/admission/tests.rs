//! Plays sequences of events against the house, beside a small world in which sandboxes really exist, and compares.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const SECOND: Duration = Duration::from_secs(1);

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn newcomer(name: &str, tenant: Option<&str>) -> Newcomer {
    Newcomer {
        id: id(name),
        tenant: tenant.map(|t| Tenant::parse(t).unwrap()),
        files_outside: true,
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
    house.apply(&name, serial, Event::Started, now).unwrap();
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
    assert_eq!(house.get(&id("a")).unwrap().state, State::Fallen);
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
    let woken = house.wake(&id("a"), SandboxId::generate(), SECOND, &limits);
    assert_eq!(woken.unwrap_err(), NoRoom::Session(Refusal::Lost));
    assert_eq!(
        house.apply(&id("a"), a, Event::Enter, SECOND).unwrap_err(),
        NoStep::Refused(Refusal::Lost)
    );
    assert_eq!(house.slots(), 0);
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

/// One thing that may happen in the played world.
#[derive(Debug, Clone)]
enum Play {
    Open {
        who: u8,
        tenant: u8,
        files_outside: bool,
    },
    Wake {
        who: u8,
    },
    Enter {
        who: u8,
    },
    Leave {
        who: u8,
    },
    Die {
        who: u8,
    },
    Hibernate {
        who: u8,
    },
    Delete {
        who: u8,
        purge: bool,
    },
    Reap {
        who: u8,
        than: u8,
    },
    Shutdown {
        who: u8,
    },
    /// The owner of this session ends the first of its orders.
    Complete {
        who: u8,
        well: bool,
    },
    Pass {
        seconds: u8,
    },
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn plays() -> impl Strategy<Value = Vec<Play>> {
    let who = 0..5_u8;
    let one = prop_oneof![
        5 => (who.clone(), 0..3_u8, prop::bool::weighted(0.8)).prop_map(|(who, tenant, files_outside)| Play::Open { who, tenant, files_outside }),
        2 => who.clone().prop_map(|who| Play::Wake { who }),
        3 => who.clone().prop_map(|who| Play::Enter { who }),
        2 => who.clone().prop_map(|who| Play::Leave { who }),
        1 => who.clone().prop_map(|who| Play::Die { who }),
        1 => who.clone().prop_map(|who| Play::Hibernate { who }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, purge)| Play::Delete { who, purge }),
        1 => (who.clone(), 0..20_u8).prop_map(|(who, than)| Play::Reap { who, than }),
        1 => who.clone().prop_map(|who| Play::Shutdown { who }),
        9 => (who, prop::bool::weighted(0.8)).prop_map(|(who, well)| Play::Complete { who, well }),
        2 => (0..9_u8).prop_map(|seconds| Play::Pass { seconds }),
    ];
    prop::collection::vec(one, 1..80)
}

/// What really exists: the sandboxes, and the orders that owners have not carried out yet.
#[derive(Default)]
struct World {
    house: House,
    now: Duration,
    sandboxes: BTreeMap<SandboxId, SessionId>,
    orders: BTreeMap<SessionId, VecDeque<(u64, Action)>>,
}

impl World {
    fn serial(&self, who: &SessionId) -> u64 {
        self.house.get(who).map_or(0, |rental| rental.serial)
    }

    fn accept(&mut self, orders: Orders) {
        for (who, action) in orders {
            assert!(
                !matches!(action, Action::PassSlot(_)),
                "the house settles these itself"
            );
            if let Action::Forget = action {
                assert!(self.house.get(&who).is_none());
                assert!(
                    !self.sandboxes.values().any(|owner| *owner == who),
                    "left behind"
                );
                continue;
            }
            if let Action::Create { sandbox, .. } = &action {
                assert!(
                    !self.sandboxes.values().any(|owner| *owner == who),
                    "two sandboxes for {who}"
                );
                self.sandboxes.insert(sandbox.clone(), who.clone());
            }
            let serial = self.serial(&who);
            self.orders
                .entry(who)
                .or_default()
                .push_back((serial, action));
        }
    }

    fn complete(&mut self, who: &SessionId, well: bool) -> Result<(), String> {
        let Some((serial, action)) = self.orders.get_mut(who).and_then(VecDeque::pop_front) else {
            return Err("nothing to do".into());
        };
        let event = match action {
            Action::Create { sandbox, .. } if well => {
                assert!(self.sandboxes.contains_key(&sandbox));
                Event::Started
            }
            Action::Create { sandbox, .. } => {
                self.sandboxes.remove(&sandbox);
                Event::StartFailed
            }
            Action::Stop(sandbox) => {
                self.sandboxes.remove(&sandbox);
                Event::Stopped { layer: well }
            }
            Action::End { sandbox, .. } => {
                if let Some(sandbox) = sandbox {
                    self.sandboxes.remove(&sandbox);
                }
                Event::Closed
            }
            Action::Clear(_) => return Ok(()),
            Action::PassSlot(_) | Action::Forget => unreachable!("never queued"),
        };
        // What an owner reports is never a surprise.
        let orders = self
            .house
            .apply(who, serial, event, self.now)
            .map_err(|e| format!("{e}"));
        self.accept(orders.expect("an owner's report is accepted"));
        Ok(())
    }

    fn play(&mut self, play: &Play, limits: &Ceilings) -> Result<(), String> {
        let name = |who: &u8| id(NAMES[usize::from(*who)]);
        let one = |world: &mut Self, who: &u8, event: Event| {
            let who = name(who);
            let serial = world.serial(&who);
            let orders = world.house.apply(&who, serial, event, world.now);
            orders
                .map(|orders| world.accept(orders))
                .map_err(|e| e.to_string())
        };
        match play {
            Play::Open {
                who,
                tenant,
                files_outside,
            } => {
                let tenant =
                    (*tenant > 0).then(|| Tenant::parse(NAMES[usize::from(*tenant)]).unwrap());
                let newcomer = Newcomer {
                    id: name(who),
                    tenant,
                    files_outside: *files_outside,
                    sandbox: SandboxId::generate(),
                };
                let victims = self.check_victims(limits, |house, now| {
                    house.open(newcomer, now, limits).map(|(_, orders)| orders)
                })?;
                self.accept(victims);
            }
            Play::Wake { who } => {
                let who = name(who);
                let orders = self.check_victims(limits, |house, now| {
                    house.wake(&who, SandboxId::generate(), now, limits)
                })?;
                self.accept(orders);
            }
            Play::Enter { who } => one(self, who, Event::Enter)?,
            Play::Leave { who } => {
                if self
                    .house
                    .get(&name(who))
                    .is_none_or(|rental| rental.uses == 0)
                {
                    return Err("nobody is in".into());
                }
                one(self, who, Event::Leave)?;
            }
            Play::Die { who } => {
                let Some(State::Resident { sandbox }) =
                    self.house.get(&name(who)).map(|r| r.state.clone())
                else {
                    return Err("nothing runs".into());
                };
                self.sandboxes.remove(&sandbox);
                one(self, who, Event::Died(sandbox))?;
            }
            Play::Hibernate { who } => {
                let uses = self.house.get(&name(who)).map_or(0, |rental| rental.uses);
                one(self, who, Event::Hibernate { heir: None })?;
                assert_eq!(uses, 0, "a busy session was put to sleep");
            }
            Play::Delete { who, purge } => {
                one(self, who, Event::Close(Why::Delete { purge: *purge }))?
            }
            Play::Reap { who, than } => {
                let than = Duration::from_secs(u64::from(*than));
                let busy = self
                    .house
                    .get(&name(who))
                    .is_some_and(|rental| rental.uses > 0);
                let reaped = one(self, who, Event::Close(Why::Idle { than }));
                assert!(!(busy && reaped.is_ok()), "a busy session was reaped");
                reaped?;
            }
            Play::Shutdown { who } => one(self, who, Event::Close(Why::Shutdown))?,
            Play::Complete { who, well } => self.complete(&name(who), *well)?,
            Play::Pass { seconds } => self.now += Duration::from_secs(u64::from(*seconds)),
        }
        Ok(())
    }

    /// Admits somebody, and looks at who had to make room for it.
    fn check_victims(
        &mut self,
        limits: &Ceilings,
        admit: impl FnOnce(&mut House, Duration) -> Result<Orders, NoRoom>,
    ) -> Result<Orders, String> {
        let before = self.house.clone();
        let orders = admit(&mut self.house, self.now).map_err(|e| e.to_string())?;
        for (who, rental) in before.iter() {
            let after = self.house.get(who).map(|rental| &rental.state);
            let evicted = matches!(rental.state, State::Resident { .. } | State::Fallen)
                && matches!(
                    after,
                    Some(State::Hibernating { .. } | State::Hibernated { .. })
                );
            let closed = matches!(after, Some(State::Closing { .. })) && rental.state.is_open();
            if evicted {
                assert_eq!(rental.uses, 0, "a busy session was evicted");
                assert!(rental.files_outside, "files went with an eviction");
                assert!(rental.idle(self.now) >= limits.evict_idle.expect("eviction is on"));
            }
            if closed {
                assert!(matches!(rental.state, State::Hibernated { .. }) && rental.uses == 0);
            }
        }
        Ok(orders)
    }

    fn check(&self, limits: &Ceilings) {
        let counted = self
            .house
            .iter()
            .filter(|(_, r)| r.state.holds_slot())
            .count() as u64;
        assert_eq!(counted, self.house.slots(), "the count of slots drifted");
        let open = self.house.iter().filter(|(_, r)| r.state.is_open()).count() as u64;
        assert_eq!(
            open,
            self.house.open_count(),
            "the count of open sessions drifted"
        );
        assert!(
            counted <= limits.resident.unwrap(),
            "more slots than there are"
        );
        assert!(
            open <= limits.open.unwrap(),
            "more sessions than there may be"
        );
        assert!(
            self.sandboxes.len() as u64 <= limits.resident.unwrap(),
            "more sandboxes than slots"
        );
        let mut tenants: BTreeMap<&Tenant, u64> = BTreeMap::new();
        for (_, rental) in self.house.iter().filter(|(_, r)| r.state.is_open()) {
            if let Some(tenant) = &rental.tenant {
                *tenants.entry(tenant).or_default() += 1;
            }
        }
        assert!(
            tenants
                .values()
                .all(|count| *count <= limits.per_tenant.unwrap())
        );
        for (who, rental) in self.house.iter() {
            let mine = self
                .sandboxes
                .values()
                .filter(|owner| *owner == who)
                .count();
            assert!(mine <= 1, "two sandboxes for {who}");
            if let State::Resident { sandbox } = &rental.state {
                assert_eq!(
                    self.sandboxes.get(sandbox),
                    Some(who),
                    "resident without a sandbox"
                );
            }
            if matches!(
                rental.state,
                State::Hibernated { .. } | State::Fallen | State::Lost
            ) {
                assert_eq!(mine, 0, "a sandbox nobody knows of");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_house_and_the_world_agree(
        plays in plays(),
        resident in 1..4_u64,
        open in 1..5_u64,
        per_tenant in 1..3_u64,
        evict in prop::option::of(0..6_u64),
    ) {
        let limits = ceilings(resident, open, per_tenant, evict);
        let mut world = World::default();
        for play in &plays {
            let before = world.house.clone();
            if world.play(play, &limits).is_err() {
                prop_assert_eq!(&world.house, &before, "a refused event changed something");
            }
            world.check(&limits);
        }
        // Whatever happened, the owners get to the end of their work, and everything can be closed.
        for _ in 0..200 {
            for who in NAMES {
                let _ = world.complete(&id(who), true);
            }
        }
        for (who, rental) in world.house.clone().iter() {
            prop_assert!(
                !matches!(rental.state, State::Opening { .. } | State::Waking { .. } | State::Hibernating { .. } | State::Closing { .. }),
                "{} is stuck in {:?}", who, rental.state
            );
        }
    }
}
