//! Who gets a slot, and at whose cost: all sessions of the house together, still pure.
//!
//! Every question is answered before anybody is touched: the ceiling of open sessions, then the tenant's, then the
//! pool of sandboxes. Only when all three have an answer is a sleeper closed or an idle sandbox's session put to sleep.

use super::state::{Action, Event, Refusal, Rental, Shift, State, Why};
use crate::id::{SandboxId, SessionId, Tenant};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many there may be. `None` is no ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ceilings {
    /// Sandboxes, those being made included.
    pub(super) resident: Option<u64>,
    /// Sessions.
    pub(super) open: Option<u64>,
    /// Sessions of one tenant.
    pub(super) per_tenant: Option<u64>,
    /// How long a session has to be idle before it may be put to sleep to make room; `None` is never.
    pub(super) evict_idle: Option<Duration>,
}

/// What has to be done, and for whom.
pub(super) type Orders = Vec<(SessionId, Action)>;

/// Why a session was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoom {
    /// There is one of this id.
    #[error("there is one of this id")]
    Exists,
    /// All open sessions are in use.
    #[error("all {0} open sessions are in use")]
    Open(u64),
    /// The tenant has all of its sessions.
    #[error("the tenant has all of its {0} sessions")]
    Tenant(u64),
    /// All slots are in use.
    #[error("all {0} slots are in use")]
    Slots(u64),
    /// The session itself may not.
    #[error(transparent)]
    Session(#[from] Refusal),
}

/// Why nothing happened to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoStep {
    /// There is none of this id (or another one by now).
    #[error("there is no such session")]
    Unknown,
    /// The session itself may not.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// One that wants to be let in.
#[derive(Debug, Clone)]
pub(super) struct Newcomer {
    /// Its id.
    pub(super) id: SessionId,
    /// Its label.
    pub(super) tenant: Option<Tenant>,
    /// Whether its files will live outside its sandbox.
    pub(super) files_outside: bool,
    /// When it ends whatever happens, if ever.
    pub(super) expires: Option<Duration>,
    /// What its sandbox will be called.
    pub(super) sandbox: SandboxId,
}

/// All sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct House {
    rentals: BTreeMap<SessionId, Rental>,
    slots: u64,
    open: u64,
    last_serial: u64,
}

/// Where a slot comes from.
#[derive(Debug, PartialEq, Eq)]
enum Slot {
    Free,
    /// It will be free when this one has gone to sleep or out; it is on its way already.
    Coming(SessionId),
    /// It will be free when this one, which is idle, has been put to sleep.
    Evict(SessionId),
}

impl House {
    /// One session.
    pub(super) fn get(&self, id: &SessionId) -> Option<&Rental> {
        self.rentals.get(id)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SessionId, &Rental)> {
        self.rentals.iter()
    }

    /// Slots in use.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Sessions that are open (being opened and asleep included, closing ones not).
    pub(super) fn open_count(&self) -> u64 {
        self.open
    }

    /// The clock was set: every session is as old as it was.
    pub(super) fn shift(&mut self, by: Shift, now: Duration) {
        for rental in self.rentals.values_mut() {
            *rental = rental.shifted(by, now);
        }
    }

    /// Lets a newcomer in, or says why not. Answers with its serial.
    pub(super) fn open(
        &mut self,
        newcomer: Newcomer,
        now: Duration,
        ceilings: &Ceilings,
    ) -> Result<(u64, Orders), NoRoom> {
        let Newcomer {
            id,
            tenant,
            files_outside,
            expires,
            sandbox,
        } = newcomer;
        if self.rentals.contains_key(&id) {
            return Err(NoRoom::Exists);
        }
        let sleeper = self.room_to_open(ceilings)?;
        self.room_for_tenant(tenant.as_ref(), sleeper.as_ref(), ceilings)?;
        let slot = self.find_slot(None, now, ceilings)?;

        let mut orders = Orders::new();
        if let Some(sleeper) = sleeper {
            orders.extend(self.must(&sleeper, Event::Close(Why::OpenCeiling), now));
        }
        let waits = self.take_slot(&id, slot, now, &mut orders);
        self.last_serial += 1;
        let serial = self.last_serial;
        let (rental, actions) =
            Rental::open(serial, tenant, files_outside, expires, sandbox, waits, now);
        orders.extend(actions.into_iter().map(|action| (id.clone(), action)));
        self.put(&id, Some(rental));
        // The slot may have come free at once (an idle session without a sandbox).
        self.settle(&mut orders, now);
        Ok((serial, orders))
    }

    /// Takes up again what an earlier daemon has written down. Answers with its serial.
    pub(super) fn take_up(&mut self, id: &SessionId, rental: Rental) -> u64 {
        self.last_serial += 1;
        let serial = self.last_serial;
        self.put(id, Some(Rental { serial, ..rental }));
        serial
    }

    /// Wakes a session that sleeps, or heals one whose sandbox died.
    pub(super) fn wake(
        &mut self,
        id: &SessionId,
        sandbox: SandboxId,
        now: Duration,
        ceilings: &Ceilings,
    ) -> Result<Orders, NoRoom> {
        let Some(rental) = self.rentals.get(id) else {
            return Err(NoRoom::Session(Refusal::Closing));
        };
        let event = |waits| Event::Wake {
            sandbox: sandbox.clone(),
            waits,
        };
        // Asked first, so that a refusal by the session itself costs nobody anything.
        rental.step(event(false), now)?;
        let slot = if rental.state.holds_slot() {
            Slot::Free
        } else {
            self.find_slot(Some(id), now, ceilings)?
        };
        let mut orders = Orders::new();
        let waits = self.take_slot(id, slot, now, &mut orders);
        orders.extend(self.must(id, event(waits), now));
        self.settle(&mut orders, now);
        Ok(orders)
    }

    /// Something happens to the session that `serial` names.
    pub(super) fn apply(
        &mut self,
        id: &SessionId,
        serial: u64,
        event: Event,
        now: Duration,
    ) -> Result<Orders, NoStep> {
        let rental = self.rentals.get(id).ok_or(NoStep::Unknown)?;
        if rental.serial != serial {
            return Err(NoStep::Unknown);
        }
        let (next, actions) = rental.step(event, now)?;
        self.put(id, next);
        let mut orders: Orders = actions.into_iter().map(|a| (id.clone(), a)).collect();
        self.settle(&mut orders, now);
        Ok(orders)
    }

    /// A step that was asked about before, and so cannot be refused.
    fn must(&mut self, id: &SessionId, event: Event, now: Duration) -> Orders {
        let step = self.rentals.get(id).map(|rental| rental.step(event, now));
        match step {
            Some(Ok((next, actions))) => {
                self.put(id, next);
                actions.into_iter().map(|a| (id.clone(), a)).collect()
            }
            Some(Err(_)) | None => {
                debug_assert!(false, "a step that was asked about is not refused");
                Orders::new()
            }
        }
    }

    /// Carries out the orders that concern the house itself: a slot that is passed on.
    fn settle(&mut self, orders: &mut Orders, now: Duration) {
        let mut settled = Orders::new();
        for (id, action) in orders.drain(..) {
            match action {
                Action::PassSlot(heir) => {
                    let Some(rental) = self.rentals.get(&heir) else {
                        continue;
                    };
                    // An heir that has gone away meanwhile leaves the slot free.
                    if let Ok((next, actions)) = rental.step(Event::SlotFree, now) {
                        self.put(&heir, next);
                        settled.extend(actions.into_iter().map(|a| (heir.clone(), a)));
                    }
                }
                other => settled.push((id, other)),
            }
        }
        *orders = settled;
    }

    fn put(&mut self, id: &SessionId, next: Option<Rental>) {
        let weigh = |rental: &Rental| {
            let state = &rental.state;
            (u64::from(state.holds_slot()), u64::from(state.is_open()))
        };
        let (slots_new, open_new) = next.as_ref().map_or((0, 0), weigh);
        let old = match next {
            Some(rental) => self.rentals.insert(id.clone(), rental),
            None => self.rentals.remove(id),
        };
        let (slots_old, open_old) = old.as_ref().map_or((0, 0), weigh);
        self.slots = self.slots + slots_new - slots_old;
        self.open = self.open + open_new - open_old;
    }

    /// The sleeper that has to be closed for another one to open, if one has to.
    fn room_to_open(&self, ceilings: &Ceilings) -> Result<Option<SessionId>, NoRoom> {
        let Some(limit) = ceilings.open.filter(|limit| self.open >= *limit) else {
            return Ok(None);
        };
        // A ceiling that was lowered under what is open is not mended by closing one.
        if self.open > limit {
            return Err(NoRoom::Open(limit));
        }
        self.rentals
            .iter()
            .filter(|(_, rental)| rental.uses == 0)
            .filter_map(|(id, rental)| match rental.state {
                // Closing one whose files are in its layer would lose them.
                State::Hibernated { since, .. } if rental.files_outside => {
                    Some((since, rental.serial, id))
                }
                _ => None,
            })
            .min()
            .map(|(_, _, id)| Some(id.clone()))
            .ok_or(NoRoom::Open(limit))
    }

    /// `leaving` is counted no more.
    fn room_for_tenant(
        &self,
        tenant: Option<&Tenant>,
        leaving: Option<&SessionId>,
        ceilings: &Ceilings,
    ) -> Result<(), NoRoom> {
        let (Some(tenant), Some(limit)) = (tenant, ceilings.per_tenant) else {
            return Ok(());
        };
        let count = self
            .rentals
            .iter()
            .filter(|(id, rental)| {
                rental.tenant.as_ref() == Some(tenant)
                    && rental.state.is_open()
                    && Some(*id) != leaving
            })
            .count();
        if u64::try_from(count).unwrap_or(u64::MAX) >= limit {
            return Err(NoRoom::Tenant(limit));
        }
        Ok(())
    }

    /// `this` is not its own victim.
    fn find_slot(
        &self,
        this: Option<&SessionId>,
        now: Duration,
        ceilings: &Ceilings,
    ) -> Result<Slot, NoRoom> {
        let Some(limit) = ceilings.resident.filter(|limit| self.slots >= *limit) else {
            return Ok(Slot::Free);
        };
        // A ceiling that was lowered under what runs is not mended by a swap.
        if self.slots > limit {
            return Err(NoRoom::Slots(limit));
        }
        let others = || self.rentals.iter().filter(|(id, _)| Some(*id) != this);
        if let Some((id, _)) = others().find(|(_, rental)| rental.state.slot_is_coming()) {
            return Ok(Slot::Coming(id.clone()));
        }
        let Some(idle) = ceilings.evict_idle else {
            return Err(NoRoom::Slots(limit));
        };
        others()
            .filter(|(_, rental)| rental.may_hibernate(idle, now).is_ok())
            .min_by_key(|(_, rental)| (rental.last_used, rental.serial))
            .map(|(id, _)| Slot::Evict(id.clone()))
            .ok_or(NoRoom::Slots(limit))
    }

    /// Whether the slot is still somebody else's.
    fn take_slot(
        &mut self,
        heir: &SessionId,
        slot: Slot,
        now: Duration,
        orders: &mut Orders,
    ) -> bool {
        match slot {
            Slot::Free => false,
            Slot::Coming(id) => {
                if let Some(rental) = self.rentals.get_mut(&id) {
                    match &mut rental.state {
                        State::Hibernating { heir: to, .. } | State::Closing { heir: to, .. } => {
                            *to = Some(heir.clone());
                        }
                        _ => debug_assert!(false, "only a slot that is coming is promised"),
                    }
                }
                true
            }
            Slot::Evict(id) => {
                let heir = Some(heir.clone());
                orders.extend(self.must(&id, Event::Hibernate { heir }, now));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
