//! What each event makes of each state.

use super::{Action, Event, Refusal, Rental, Shift, State, Step, Why};
use crate::id::{SandboxId, SessionId};
use std::time::Duration;

impl Rental {
    /// What happens when something happens. See the drawing above.
    pub(in crate::sessions) fn step(&self, event: Event, now: Duration) -> Step {
        match event {
            Event::Enter => self.enter(now),
            Event::Leave => Ok((Some(self.left(now)), vec![])),
            Event::SlotFree => self.slot_free(),
            Event::Started { keeps } => self.started(keeps, now),
            Event::StartFailed => self.start_failed(now),
            Event::Died(sandbox) => self.died(&sandbox),
            Event::Hibernate { heir } => self.hibernate(heir, now),
            Event::Stopped { layer } => self.stopped(layer, now),
            Event::Wake { sandbox, waits } => self.wake(sandbox, waits),
            Event::Renew { expires } => self.renew(expires),
            Event::Expire { than } => self.expire(than, now),
            Event::Suspend => self.suspend(),
            Event::Close(why) => self.close(why, now),
            Event::Closed => self.closed(),
        }
    }

    fn to(&self, state: State) -> Option<Self> {
        Some(Self {
            state,
            ..self.clone()
        })
    }

    fn enter(&self, now: Duration) -> Step {
        let mut next = match &self.state {
            State::Opening { .. } => return Err(Refusal::Opening),
            State::Closing { .. } => return Err(Refusal::Closing),
            State::Lost => return Err(Refusal::Lost),
            State::Hibernated { layer, .. } => Self {
                state: State::Hibernated {
                    layer: layer.clone(),
                    since: now,
                },
                ..self.clone()
            },
            State::Resident { .. }
            | State::Falling { .. }
            | State::Fallen { .. }
            | State::Hibernating { .. }
            | State::Waking { .. } => self.clone(),
        };
        next.uses += 1;
        next.last_used = now;
        Ok((Some(next), vec![]))
    }

    /// An operation that has begun may always end.
    fn left(&self, now: Duration) -> Self {
        let mut next = self.clone();
        next.uses = next.uses.saturating_sub(1);
        next.last_used = now;
        if let State::Hibernated { since, .. } = &mut next.state {
            *since = now;
        }
        next
    }

    fn slot_free(&self) -> Step {
        let (state, sandbox, layer) = match &self.state {
            State::Opening {
                sandbox,
                waits: true,
            } => {
                let state = State::Opening {
                    sandbox: sandbox.clone(),
                    waits: false,
                };
                (state, sandbox, false)
            }
            State::Waking {
                sandbox,
                layer,
                waits: true,
            } => {
                let state = State::Waking {
                    sandbox: sandbox.clone(),
                    layer: *layer,
                    waits: false,
                };
                (state, sandbox, *layer)
            }
            _ => return Err(Refusal::Unexpected),
        };
        let create = Action::Create {
            sandbox: sandbox.clone(),
            layer,
        };
        Ok((self.to(state), vec![create]))
    }

    fn started(&self, keeps: bool, now: Duration) -> Step {
        match &self.state {
            State::Opening {
                sandbox,
                waits: false,
            }
            | State::Waking {
                sandbox,
                waits: false,
                ..
            } => {
                let sandbox = sandbox.clone();
                let mut next = self.clone();
                next.state = State::Resident { sandbox, keeps };
                next.last_used = now;
                Ok((Some(next), vec![]))
            }
            // It has to end already; the end is under way.
            State::Closing { .. } => Ok((Some(self.clone()), vec![])),
            _ => Err(Refusal::Unexpected),
        }
    }

    fn start_failed(&self, now: Duration) -> Step {
        match &self.state {
            State::Opening { waits: false, .. } => Ok((None, vec![Action::Forget])),
            State::Waking {
                sandbox,
                layer,
                waits: false,
            } => Ok((
                self.to(State::Hibernated {
                    layer: layer.then(|| sandbox.clone()),
                    since: now,
                }),
                vec![],
            )),
            State::Closing { .. } => Ok((Some(self.clone()), vec![])),
            _ => Err(Refusal::Unexpected),
        }
    }

    fn died(&self, dead: &SandboxId) -> Step {
        match &self.state {
            State::Resident { sandbox, keeps } if sandbox == dead => {
                let sandbox = sandbox.clone();
                if self.files_outside || *keeps {
                    let stop = Action::Stop(sandbox.clone());
                    return Ok((self.to(State::Falling { sandbox }), vec![stop]));
                }
                Ok((self.to(State::Lost), vec![Action::Clear(sandbox)]))
            }
            State::Hibernating { sandbox, .. } | State::Falling { sandbox } if sandbox == dead => {
                Ok((Some(self.clone()), vec![]))
            }
            State::Closing { .. } => Ok((Some(self.clone()), vec![])),
            _ => Err(Refusal::Unexpected),
        }
    }

    /// Whether it could be hibernated for want of a slot, having been idle so long.
    pub(in crate::sessions) fn may_hibernate(
        &self,
        idle: Duration,
        now: Duration,
    ) -> Result<(), Refusal> {
        match &self.state {
            State::Resident { .. } | State::Fallen { .. } => {}
            State::Opening { .. } => return Err(Refusal::Opening),
            State::Falling { .. } | State::Hibernating { .. } | State::Waking { .. } => {
                return Err(Refusal::Changing);
            }
            State::Hibernated { .. } => return Err(Refusal::Asleep),
            State::Lost => return Err(Refusal::Lost),
            State::Closing { .. } => return Err(Refusal::Closing),
        }
        if self.uses > 0 {
            return Err(Refusal::Busy);
        }
        if !self.files_outside && matches!(self.state, State::Resident { keeps: false, .. }) {
            return Err(Refusal::FilesInside);
        }
        if self.idle(now) < idle {
            return Err(Refusal::Recent);
        }
        Ok(())
    }

    fn hibernate(&self, heir: Option<SessionId>, now: Duration) -> Step {
        self.may_hibernate(Duration::ZERO, now)?;
        match &self.state {
            State::Resident { sandbox, .. } => {
                let sandbox = sandbox.clone();
                let stop = Action::Stop(sandbox.clone());
                Ok((self.to(State::Hibernating { sandbox, heir }), vec![stop]))
            }
            // Nothing runs: it sleeps at once.
            State::Fallen { layer } => Ok((
                self.to(State::Hibernated {
                    layer: layer.clone(),
                    since: now,
                }),
                heir.map(Action::PassSlot).into_iter().collect(),
            )),
            _ => Err(Refusal::Unexpected),
        }
    }

    /// Without stored files and without its layer nothing is left of a session that could be woken.
    fn stopped(&self, layer: bool, now: Duration) -> Step {
        let lives_on = layer || self.files_outside;
        match &self.state {
            State::Hibernating { sandbox, heir } => {
                let state = if lives_on {
                    State::Hibernated {
                        layer: layer.then(|| sandbox.clone()),
                        since: now,
                    }
                } else {
                    State::Lost
                };
                let pass = heir.clone().map(Action::PassSlot);
                Ok((self.to(state), pass.into_iter().collect()))
            }
            State::Falling { sandbox } => {
                let state = if lives_on {
                    State::Fallen {
                        layer: layer.then(|| sandbox.clone()),
                    }
                } else {
                    State::Lost
                };
                Ok((self.to(state), vec![]))
            }
            State::Closing { .. } => Ok((Some(self.clone()), vec![])),
            _ => Err(Refusal::Unexpected),
        }
    }

    fn wake(&self, sandbox: SandboxId, waits: bool) -> Step {
        let (sandbox, layer, waits) = match &self.state {
            // It kept its slot.
            State::Fallen { layer: None } => (sandbox, false, false),
            State::Fallen { layer: Some(kept) } => (kept.clone(), true, false),
            State::Hibernated { layer: None, .. } => (sandbox, false, waits),
            State::Hibernated {
                layer: Some(kept), ..
            } => (kept.clone(), true, waits),
            State::Resident { .. } => return Err(Refusal::Awake),
            State::Opening { .. } => return Err(Refusal::Opening),
            State::Falling { .. } | State::Hibernating { .. } | State::Waking { .. } => {
                return Err(Refusal::Changing);
            }
            State::Lost => return Err(Refusal::Lost),
            State::Closing { .. } => return Err(Refusal::Closing),
        };
        let actions = if waits {
            vec![]
        } else {
            vec![Action::Create {
                sandbox: sandbox.clone(),
                layer,
            }]
        };
        let state = State::Waking {
            sandbox,
            layer,
            waits,
        };
        Ok((self.to(state), actions))
    }

    fn expire(&self, than: Duration, now: Duration) -> Step {
        match &self.state {
            State::Hibernated { .. } if self.uses > 0 => Err(Refusal::Busy),
            State::Hibernated { .. } if !self.files_outside => Err(Refusal::FilesInside),
            State::Hibernated {
                layer: Some(layer),
                since,
            } if now.saturating_sub(*since) > than => {
                let state = State::Hibernated {
                    layer: None,
                    since: *since,
                };
                Ok((self.to(state), vec![Action::Clear(layer.clone())]))
            }
            State::Hibernated { layer: Some(_), .. } => Err(Refusal::Recent),
            _ => Err(Refusal::Unexpected),
        }
    }

    fn renew(&self, expires: Option<Duration>) -> Step {
        match &self.state {
            State::Opening { .. } => Err(Refusal::Opening),
            State::Closing { .. } => Err(Refusal::Closing),
            _ => Ok((
                Some(Self {
                    expires,
                    ..self.clone()
                }),
                vec![],
            )),
        }
    }

    /// The same session by a clock that was set: whatever lies behind or ahead of it stays as far away as it was.
    pub(in crate::sessions) fn shifted(&self, by: Shift, now: Duration) -> Self {
        let mut next = self.clone();
        // Nothing was used in the future.
        next.last_used = by.of(self.last_used).min(now);
        next.expires = self.expires.map(|expires| by.of(expires));
        if let State::Hibernated { since, .. } = &mut next.state {
            *since = by.of(*since).min(now);
        }
        next
    }

    fn close(&self, why: Why, now: Duration) -> Step {
        match why {
            Why::Delete { .. } | Why::Shutdown => {}
            Why::Expired => {
                if self.expires.is_none_or(|expires| now < expires) {
                    return Err(Refusal::Recent);
                }
            }
            Why::Idle { than } => self.may_reap(than, now)?,
            Why::OpenCeiling => match &self.state {
                State::Hibernated { .. } if self.uses == 0 => {}
                State::Hibernated { .. } => return Err(Refusal::Busy),
                _ => return Err(Refusal::Awake),
            },
        }
        let (sandbox, heir) = match &self.state {
            State::Opening { sandbox, waits } => match why {
                Why::Shutdown => ((!waits).then(|| sandbox.clone()), None),
                Why::Delete { .. } | Why::Idle { .. } | Why::Expired | Why::OpenCeiling => {
                    return Err(Refusal::Opening);
                }
            },
            State::Resident { sandbox, .. } | State::Falling { sandbox } => {
                (Some(sandbox.clone()), None)
            }
            State::Hibernating { sandbox, heir } => (Some(sandbox.clone()), heir.clone()),
            State::Waking {
                sandbox,
                waits: false,
                ..
            } => (Some(sandbox.clone()), None),
            State::Lost => (None, None),
            State::Fallen { layer } | State::Hibernated { layer, .. } => (layer.clone(), None),
            State::Waking {
                sandbox,
                layer,
                waits: true,
            } => (layer.then(|| sandbox.clone()), None),
            State::Closing { .. } => return Err(Refusal::Closing),
        };
        let purge = matches!(why, Why::Delete { purge: true });
        // A kept layer is no sandbox and holds no slot, yet has to be removed like one.
        let slot = self.state.holds_slot().then(|| sandbox.clone()).flatten();
        let end = Action::End { sandbox, purge };
        Ok((
            self.to(State::Closing {
                sandbox: slot,
                heir,
            }),
            vec![end],
        ))
    }

    fn suspend(&self) -> Step {
        let (sandbox, heir) = match &self.state {
            // Nobody has heard of it yet.
            State::Opening { .. } => return self.close(Why::Shutdown, Duration::ZERO),
            State::Resident { sandbox, .. }
            | State::Falling { sandbox }
            | State::Waking {
                sandbox,
                waits: false,
                ..
            } => (sandbox, None),
            State::Hibernating { sandbox, heir } => (sandbox, heir.clone()),
            // Nothing runs, and what it is stands on record.
            State::Fallen { .. } | State::Hibernated { .. } | State::Waking { waits: true, .. } => {
                return Err(Refusal::Asleep);
            }
            State::Lost => return Err(Refusal::Lost),
            State::Closing { .. } => return Err(Refusal::Closing),
        };
        let closing = State::Closing {
            sandbox: Some(sandbox.clone()),
            heir,
        };
        Ok((self.to(closing), vec![Action::Suspend(sandbox.clone())]))
    }

    fn may_reap(&self, than: Duration, now: Duration) -> Result<(), Refusal> {
        if self.uses > 0 {
            return Err(Refusal::Busy);
        }
        match &self.state {
            State::Resident { .. } | State::Fallen { .. } | State::Lost => {
                (self.idle(now) > than).then_some(()).ok_or(Refusal::Recent)
            }
            State::Hibernated { since, .. } => (now.saturating_sub(*since) >= than)
                .then_some(())
                .ok_or(Refusal::Recent),
            State::Opening { .. } => Err(Refusal::Opening),
            State::Falling { .. } | State::Hibernating { .. } | State::Waking { .. } => {
                Err(Refusal::Changing)
            }
            State::Closing { .. } => Err(Refusal::Closing),
        }
    }

    fn closed(&self) -> Step {
        match &self.state {
            State::Closing { heir, .. } => {
                let mut actions = vec![Action::Forget];
                actions.extend(heir.clone().map(Action::PassSlot));
                Ok((None, actions))
            }
            _ => Err(Refusal::Unexpected),
        }
    }
}
