//! Plays sequences of events against the house, beside a small world in which sandboxes and layers really exist and
//! owners write into a book, and compares. The daemon may be killed at any point.

use super::{ceilings, id};
use crate::auth::session_tokens::Nonce;
use crate::id::{SandboxId, SessionId, Tenant};
use crate::sessions::admission::{Ceilings, House, Newcomer, NoRoom, Orders};
use crate::sessions::ledger::{Record, Standing};
use crate::sessions::recovery::{rental as rental_of, state_of};
use crate::sessions::state::{Action, Event, Rental, Shift, State, Why};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

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
    Renew {
        who: u8,
        seconds: Option<u8>,
    },
    Over {
        who: u8,
    },
    Jump {
        seconds: u32,
        forward: bool,
    },
    Suspend {
        who: u8,
    },
    /// The daemon is killed and started again; `who`'s owner may have written down what it did and not said it yet.
    Crash {
        who: Option<u8>,
        well: bool,
    },
    /// Other ceilings, and whether layers are kept.
    Configure {
        resident: u64,
        open: u64,
        keep: bool,
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
        1 => (who.clone(), prop::option::weighted(0.8, 0..20_u8)).prop_map(|(who, seconds)| Play::Renew { who, seconds }),
        1 => who.clone().prop_map(|who| Play::Over { who }),
        1 => (0..20_000_u32, any::<bool>()).prop_map(|(seconds, forward)| Play::Jump { seconds, forward }),
        1 => who.clone().prop_map(|who| Play::Suspend { who }),
        1 => (prop::option::of(who.clone()), any::<bool>()).prop_map(|(who, well)| Play::Crash { who, well }),
        1 => (1..4_u64, 3..6_u64, any::<bool>()).prop_map(|(resident, open, keep)| Play::Configure { resident, open, keep }),
        9 => (who, prop::bool::weighted(0.8)).prop_map(|(who, well)| Play::Complete { who, well }),
        2 => (0..9_u8).prop_map(|seconds| Play::Pass { seconds }),
    ];
    prop::collection::vec(one, 1..80)
}

/// What really exists: the sandboxes, the layers on disk, what is written down, and the orders that owners have not
/// carried out yet.
#[derive(Default)]
struct World {
    house: House,
    now: Duration,
    sandboxes: BTreeMap<SandboxId, SessionId>,
    layers: BTreeSet<SandboxId>,
    /// Whose write layers can be kept.
    keepable: BTreeSet<SandboxId>,
    book: BTreeMap<SessionId, Record>,
    orders: BTreeMap<SessionId, VecDeque<(u64, Action)>>,
    /// The ceilings in force.
    limits: Ceilings,
    /// As many there may be although ceilings were lowered since.
    slots_from_before: u64,
    open_from_before: u64,
    tenants_from_before: BTreeMap<Tenant, u64>,
    keep: bool,
}

/// How many open sessions each has.
fn tenants(house: &House) -> BTreeMap<Tenant, u64> {
    let mut tenants = BTreeMap::new();
    for (_, rental) in house.iter().filter(|(_, r)| r.state.is_open()) {
        if let Some(tenant) = &rental.tenant {
            *tenants.entry(tenant.clone()).or_default() += 1;
        }
    }
    tenants
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

    /// One order, as its owner carries it out and writes down what came of it. Answers with its report.
    fn carry_out(&mut self, who: &SessionId, action: Action, well: bool) -> Option<Event> {
        Some(match action {
            Action::Create { sandbox, layer } if well => {
                assert!(self.sandboxes.contains_key(&sandbox));
                assert!(!layer || self.layers.contains(&sandbox), "no such layer");
                let keeps = layer || self.keep;
                if keeps {
                    self.layers.insert(sandbox.clone());
                    self.keepable.insert(sandbox.clone());
                }
                self.write(who, Standing::Resident { sandbox, keeps });
                Event::Started { keeps }
            }
            Action::Create { sandbox, layer } => {
                self.sandboxes.remove(&sandbox);
                assert!(!layer || self.layers.contains(&sandbox), "no such layer");
                Event::StartFailed
            }
            Action::Stop(sandbox) => {
                let layer = self.put_away(who, &sandbox, well);
                Event::Stopped { layer }
            }
            Action::Suspend(sandbox) => {
                self.put_away(who, &sandbox, well);
                Event::Closed
            }
            Action::End { sandbox, .. } => {
                if let Some(sandbox) = sandbox {
                    self.sandboxes.remove(&sandbox);
                    self.layers.remove(&sandbox);
                }
                self.book.remove(who);
                Event::Closed
            }
            Action::Clear(sandbox) => {
                match self.house.get(who).map(|rental| rental.state.clone()) {
                    Some(State::Hibernated { layer: None, since }) => {
                        self.write(who, Standing::Hibernated { layer: None, since });
                    }
                    Some(State::Lost) => self.write(who, Standing::Lost),
                    _ => {}
                }
                self.layers.remove(&sandbox);
                return None;
            }
            Action::PassSlot(_) | Action::Forget => unreachable!("never queued"),
        })
    }

    fn put_away(&mut self, who: &SessionId, sandbox: &SandboxId, well: bool) -> bool {
        self.sandboxes.remove(sandbox);
        let layer = well && self.keepable.contains(sandbox) && self.layers.contains(sandbox);
        if !layer {
            self.layers.remove(sandbox);
        }
        let stored = self.house.get(who).is_some_and(|r| r.files_outside);
        let standing = if layer || stored {
            Standing::Hibernated {
                layer: layer.then(|| sandbox.clone()),
                since: self.now,
            }
        } else {
            Standing::Lost
        };
        self.write(who, standing);
        layer
    }

    fn write(&mut self, who: &SessionId, standing: Standing) {
        let rental = self.house.get(who).expect("it is in the house");
        let record = Record {
            id: who.clone(),
            runtime: String::new(),
            tenant: rental.tenant.clone(),
            labels: BTreeMap::new(),
            nonce: Nonce::from_bytes([0; 16]),
            created: Duration::ZERO,
            expires: rental.expires,
            last_used: rental.last_used,
            files_outside: rental.files_outside,
            standing,
        };
        self.book.insert(who.clone(), record);
    }

    fn complete(&mut self, who: &SessionId, well: bool) -> Result<(), String> {
        let Some((serial, action)) = self.orders.get_mut(who).and_then(VecDeque::pop_front) else {
            return Err("nothing to do".into());
        };
        let Some(event) = self.carry_out(who, action, well) else {
            return Ok(());
        };
        // What an owner reports is never a surprise.
        let orders = self
            .house
            .apply(who, serial, event, self.now)
            .map_err(|e| format!("{e}"));
        self.accept(orders.expect("an owner's report is accepted"));
        Ok(())
    }

    /// Everything that runs goes with the daemon; the next one has the book and the layers on disk.
    fn crash(&mut self, who: Option<SessionId>, well: bool) {
        if let Some(who) = who
            && let Some((_, action)) = self.orders.get_mut(&who).and_then(VecDeque::pop_front)
        {
            self.carry_out(&who, action, well);
        }
        self.sandboxes.clear();
        self.orders.clear();
        let before = std::mem::take(&mut self.house);
        for (who, record) in &self.book {
            let state = state_of(record);
            match &state {
                State::Hibernated {
                    layer: Some(layer), ..
                } => assert!(self.layers.contains(layer), "a layer that nobody has"),
                State::Hibernated { layer: None, .. } => {
                    assert!(record.files_outside, "an empty one in place of a lost one");
                }
                State::Lost => {}
                other => panic!("{who} runs without a daemon: {other:?}"),
            }
            self.house.take_up(who, rental_of(record, state));
        }
        // Whoever was heard of is still there, and is lost only where nothing of it was outside.
        for (who, rental) in before.iter() {
            let after = self.house.get(who).map(|rental| &rental.state);
            match &rental.state {
                State::Opening { .. } | State::Closing { .. } => {}
                State::Lost => assert!(matches!(after, Some(State::Lost) | None)),
                State::Resident { keeps, .. } if !rental.files_outside && !keeps => {
                    assert_eq!(after, Some(&State::Lost));
                }
                _ if rental.files_outside => {
                    assert!(
                        matches!(after, Some(State::Hibernated { .. })),
                        "{who}: {after:?}"
                    );
                }
                _ => assert!(after.is_some(), "{who} is forgotten"),
            }
        }
        let known: BTreeSet<SandboxId> = self
            .house
            .iter()
            .filter_map(|(_, rental)| match &rental.state {
                State::Hibernated { layer, .. } => layer.clone(),
                _ => None,
            })
            .collect();
        self.layers.retain(|layer| known.contains(layer));
        // One that was being closed is open again: nobody had heard that it was gone.
        self.open_from_before = self.house.open_count();
        self.tenants_from_before = tenants(&self.house);
    }

    fn open(
        &mut self,
        id: SessionId,
        tenant: Option<Tenant>,
        files_outside: bool,
    ) -> Result<(), String> {
        let limits = self.limits;
        let newcomer = Newcomer {
            id,
            tenant,
            files_outside,
            expires: None,
            sandbox: SandboxId::generate(),
        };
        let victims = self.check_victims(&limits, |house, now| {
            house.open(newcomer, now, &limits).map(|(_, orders)| orders)
        })?;
        self.accept(victims);
        Ok(())
    }

    fn renew(&mut self, who: &SessionId, seconds: Option<u8>) -> Result<(), String> {
        let after = seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let expires = after.map(|after| self.now + after);
        self.apply(who, Event::Renew { expires })?;
        if let Some(record) = self.book.get_mut(who) {
            record.expires = expires;
        }
        Ok(())
    }

    fn over(&mut self, who: &SessionId) -> Result<(), String> {
        let expires = self.house.get(who).and_then(|rental| rental.expires);
        let over = expires.is_some_and(|expires| expires <= self.now);
        let closed = self.apply(who, Event::Close(Why::Expired));
        assert!(over || closed.is_err(), "closed before its time");
        closed
    }

    fn apply(&mut self, who: &SessionId, event: Event) -> Result<(), String> {
        let serial = self.serial(who);
        let orders = self.house.apply(who, serial, event, self.now);
        orders
            .map(|orders| self.accept(orders))
            .map_err(|e| e.to_string())
    }

    /// The clock is set, and nobody is older or younger for it.
    fn jump(&mut self, seconds: u32, forward: bool) -> Result<(), String> {
        let by = Duration::from_secs(u64::from(seconds));
        let (shift, now) = if forward {
            (Shift::Forward(by), self.now + by)
        } else {
            (
                Shift::Back(by),
                self.now.checked_sub(by).ok_or("no time before time")?,
            )
        };
        let before = self.house.clone();
        self.house.shift(shift, now);
        for (who, rental) in before.iter() {
            let after = self.house.get(who).unwrap();
            let (idle, was_idle) = (after.idle(now), rental.idle(self.now));
            assert!(
                idle == was_idle || !forward && idle < was_idle,
                "{who} aged"
            );
            let left = |rental: &Rental, now| rental.expires.map(|e| e.saturating_sub(now));
            assert!(left(after, now) == left(rental, self.now) || !forward);
        }
        for record in self.book.values_mut() {
            record.last_used = shift.of(record.last_used).min(now);
            record.expires = record.expires.map(|expires| shift.of(expires));
            if let Standing::Hibernated { since, .. } = &mut record.standing {
                *since = shift.of(*since).min(now);
            }
        }
        self.now = now;
        Ok(())
    }

    fn configure(&mut self, limits: Ceilings) {
        self.limits = limits;
        self.slots_from_before = self.house.slots();
        self.open_from_before = self.house.open_count();
    }

    fn play(&mut self, play: &Play) -> Result<(), String> {
        let limits = &self.limits.clone();
        let name = |who: &u8| id(NAMES[usize::from(*who)]);
        let one = |world: &mut Self, who: &u8, event: Event| world.apply(&name(who), event);
        match play {
            Play::Open {
                who,
                tenant,
                files_outside,
            } => {
                let tenant = usize::from(*tenant);
                let tenant = (tenant > 0).then(|| Tenant::parse(NAMES[tenant]).unwrap());
                self.open(name(who), tenant, *files_outside)?;
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
                let Some(State::Resident { sandbox, .. }) =
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
            Play::Renew { who, seconds } => self.renew(&name(who), *seconds)?,
            Play::Over { who } => self.over(&name(who))?,
            Play::Jump { seconds, forward } => self.jump(*seconds, *forward)?,
            Play::Suspend { who } => one(self, who, Event::Suspend)?,
            Play::Crash { who, well } => self.crash(who.as_ref().map(name), *well),
            Play::Configure {
                resident,
                open,
                keep,
            } => {
                self.keep = *keep;
                self.configure(Ceilings {
                    resident: Some(*resident),
                    open: Some(*open),
                    ..self.limits
                });
            }
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
            let evicted = matches!(rental.state, State::Resident { .. } | State::Fallen { .. })
                && matches!(
                    after,
                    Some(State::Hibernating { .. } | State::Hibernated { .. })
                );
            let closed = matches!(after, Some(State::Closing { .. })) && rental.state.is_open();
            if evicted {
                assert_eq!(rental.uses, 0, "a busy session was evicted");
                let lives_on = match &rental.state {
                    State::Resident { keeps, .. } => *keeps,
                    State::Fallen { layer } => layer.is_some(),
                    _ => false,
                };
                assert!(
                    rental.files_outside || lives_on,
                    "files went with an eviction"
                );
                assert!(rental.idle(self.now) >= limits.evict_idle.expect("eviction is on"));
            }
            if closed {
                assert!(matches!(rental.state, State::Hibernated { .. }) && rental.uses == 0);
            }
        }
        Ok(orders)
    }

    fn check(&mut self) {
        let limits = &self.limits;
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
        // What is over a ceiling that was lowered goes down and not up again.
        self.slots_from_before = self.slots_from_before.min(counted);
        self.open_from_before = self.open_from_before.min(open);
        let resident = limits.resident.unwrap().max(self.slots_from_before);
        assert!(counted <= resident, "more slots than there are");
        assert!(
            open <= limits.open.unwrap().max(self.open_from_before),
            "more sessions than there may be"
        );
        assert!(
            self.sandboxes.len() as u64 <= resident,
            "more sandboxes than slots"
        );
        let tenants = tenants(&self.house);
        self.tenants_from_before.retain(|tenant, count| {
            *count = (*count).min(tenants.get(tenant).copied().unwrap_or(0));
            *count > 0
        });
        for (tenant, count) in tenants {
            let before = self.tenants_from_before.get(&tenant).copied().unwrap_or(0);
            assert!(count <= limits.per_tenant.unwrap().max(before));
        }
        for (who, rental) in self.house.iter() {
            let mine = self
                .sandboxes
                .values()
                .filter(|owner| *owner == who)
                .count();
            assert!(mine <= 1, "two sandboxes for {who}");
            if let State::Resident { sandbox, .. } = &rental.state {
                assert_eq!(
                    self.sandboxes.get(sandbox),
                    Some(who),
                    "resident without a sandbox"
                );
            }
            if matches!(
                rental.state,
                State::Hibernated { .. } | State::Fallen { .. } | State::Lost
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
        let mut world = World::default();
        world.configure(ceilings(resident, open, per_tenant, evict));
        for play in &plays {
            let before = world.house.clone();
            if world.play(play).is_err() {
                prop_assert_eq!(&world.house, &before, "a refused event changed something");
            }
            world.check();
        }
        // Whatever happened, the owners get to the end of their work, and everything can be closed.
        for _ in 0..200 {
            for who in NAMES {
                let _ = world.complete(&id(who), true);
            }
        }
        for (who, rental) in world.house.clone().iter() {
            prop_assert!(
                !matches!(rental.state, State::Opening { .. } | State::Waking { .. } | State::Falling { .. } | State::Hibernating { .. } | State::Closing { .. }),
                "{} is stuck in {:?}", who, rental.state
            );
        }
    }
}
