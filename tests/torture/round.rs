//! One round: load and faults together, then quiet, then the comparison.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::load;
use crate::plan::{Fault, Link, Plan};
use crate::stage::{Act, LOOK, Servers};
use crate::support::checker::Breach;
use crate::support::cleanup::{self, Signal};
use crate::support::postgres::Shutdown;
use crate::support::relay::Weather;

/// Longest time from the end of the faults until all is in Kafka, stored and confirmed.
const RECOVERY: Duration = Duration::from_secs(90);

/// Longest time for a clean stop, whatever is broken meanwhile.
const STOP: Duration = Duration::from_secs(20);

const TICK: Duration = Duration::from_millis(5);

/// What happens at a moment of the round.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Begin(Fault),
    End(Fault),
}

/// Runs `plan`; what it finds is with the act's checker. Gives the time from the end of load and
/// faults until everything was in Kafka, stored and confirmed.
pub(crate) fn run(act: &mut Act, servers: &Servers, plan: &Plan) -> Duration {
    act.calm = plan.faults.is_empty();
    let writers: Vec<_> = plan
        .writers
        .iter()
        .cloned()
        .map(|work| {
            let (server, database) = (Arc::clone(&servers.postgres), act.scene.name.clone());
            let committed = Arc::clone(&act.committed);
            thread::spawn(move || load::write(&server, &database, &work, &committed))
        })
        .collect();
    let mut playing = Playing {
        act,
        servers,
        ending: None,
    };
    playing.play(&turns(plan), || {
        writers.iter().all(thread::JoinHandle::is_finished)
    });
    playing.act.heal(servers);
    for writer in writers {
        writer.join().expect("a writer does its work");
    }
    let healed = Instant::now();
    playing.settle();
    healed.elapsed()
}

fn turns(plan: &Plan) -> Vec<(Duration, Turn)> {
    let mut turns = Vec::new();
    for (at, fault) in &plan.faults {
        turns.push((*at, Turn::Begin(*fault)));
        if let Some(time) = fault.lasts() {
            turns.push((*at + time, Turn::End(*fault)));
        }
    }
    turns.sort_by_key(|(at, _)| *at);
    turns
}

struct Playing<'a> {
    act: &'a mut Act,
    servers: &'a Servers,
    /// When walpost was asked to stop.
    ending: Option<Instant>,
}

impl Playing<'_> {
    /// Plays `turns` until they and the load are `done`, or something was found.
    fn play(&mut self, turns: &[(Duration, Turn)], done: impl Fn() -> bool) {
        let start = Instant::now();
        let mut turns = turns.iter().peekable();
        while self.act.checker.is_content() && (turns.peek().is_some() || !done()) {
            match turns.next_if(|(at, _)| start.elapsed() >= *at) {
                Some((_, Turn::Begin(fault))) => self.begin(*fault),
                Some((_, Turn::End(fault))) => self.end(*fault),
                None => self.act.look(TICK),
            }
            self.watch();
        }
    }

    fn begin(&mut self, fault: Fault) {
        let (act, servers) = (&mut *self.act, self.servers);
        match fault {
            Fault::Kill => {
                act.walpost.kill();
                self.ending = None;
                act.probe("after a SIGKILL");
                act.start_again();
            }
            Fault::Terminate => {
                if self.ending.is_none() {
                    act.walpost.signal(Signal::TERM);
                    self.ending = Some(Instant::now());
                }
            }
            Fault::Freeze(_) => act.walpost.signal(Signal::STOP),
            Fault::Clock(seconds) => act.set_clock(seconds),
            Fault::DiskFull(_) => act.walpost.fill_disk(true),
            Fault::Cut(link) => servers.relay(link).cut(),
            Fault::Storm(link, weather, _) => servers.relay(link).set(weather),
            Fault::Silence(link, _) => servers.relay(link).set(Weather::HalfOpen),
            Fault::EndWalsender => {
                act.walsenders("pg_terminate_backend(pid)");
            }
            Fault::KillWalsender => {
                for pid in act.walsenders("pid") {
                    cleanup::signal(pid.parse().expect("a process id"), Signal::KILL);
                }
            }
            Fault::FreezePostgres(_) => {
                servers.postgres.freeze();
                act.postgres_away = true;
            }
            Fault::FreezeKafka(_) => {
                servers.kafka.freeze();
                act.kafka_away = true;
            }
            // An orderly stop waits for walpost, so nothing else may be in its way.
            Fault::RestartPostgres { crash } => {
                act.heal(servers);
                servers.postgres.restart(if crash {
                    Shutdown::Immediate
                } else {
                    Shutdown::Fast
                });
            }
            Fault::RestartKafka { crash } => {
                act.heal(servers);
                if crash {
                    servers.kafka.kill_node(0);
                } else {
                    servers.kafka.stop_node(0);
                }
                servers.kafka.start_node(0);
            }
        }
    }

    fn end(&mut self, fault: Fault) {
        let (act, servers) = (&mut *self.act, self.servers);
        match fault {
            Fault::Freeze(_) => {
                act.probe("while walpost was frozen");
                act.walpost.signal(Signal::CONT);
            }
            Fault::DiskFull(_) => act.walpost.fill_disk(false),
            Fault::Storm(link, weather, _) => {
                let silent = matches!(weather, Weather::Stall | Weather::HalfOpen | Weather::Down);
                if silent && link == Link::Kafka {
                    act.probe("while nothing reached Kafka");
                }
                servers.relay(link).set(Weather::Fair);
                if weather == Weather::HalfOpen {
                    servers.relay(link).cut();
                }
            }
            Fault::Silence(link, _) => servers.relay(link).set(Weather::Fair),
            Fault::FreezePostgres(_) => {
                servers.postgres.thaw();
                act.postgres_away = false;
            }
            Fault::FreezeKafka(_) => {
                servers.kafka.thaw();
                act.kafka_away = false;
            }
            _ => {}
        }
    }

    /// Walpost runs, unless it was asked to stop; then it starts again.
    fn watch(&mut self) {
        let act = &mut *self.act;
        if act.walpost.is_running() {
            if self.ending.is_some_and(|since| since.elapsed() > STOP) {
                let text = format!("walpost still runs {STOP:?} after SIGTERM");
                act.checker.breach(Breach::Stuck, text);
            }
            return;
        }
        let status = act.walpost.wait_exit(Duration::ZERO);
        // Right after its start it does not yet listen to signals.
        let well = status.success() || status.signal() == Some(Signal::TERM.as_raw());
        if self.ending.take().is_none() || !well {
            let text = format!("walpost ended by itself, or not well: {status}");
            act.checker.breach(Breach::Stuck, text);
        } else {
            act.probe("after a clean stop");
            act.start_again();
        }
    }

    /// Waits until everything is confirmed, and compares.
    fn settle(&mut self) {
        let deadline = Instant::now() + RECOVERY;
        let before = self
            .act
            .ask_surely("select '', (pg_current_wal_insert_lsn() - '0/0')::bigint")[0]
            .1;
        // Behind everything else, so that its confirmation is that of all before it.
        self.act
            .ask_surely("select key, n from emit('a-0', 1, 0, false)");
        let committed = self
            .act
            .ask_surely("select key, n from counters order by key");
        loop {
            if !self.act.checker.is_content() {
                return;
            }
            self.act.look(TICK);
            self.watch();
            let confirmed = self.act.confirmed().unwrap_or(0);
            if self.ending.is_none() && confirmed > before {
                break;
            }
            if Instant::now() > deadline {
                let missing = self.act.checker.missing(&committed).join("; ");
                let text = format!(
                    "{RECOVERY:?} after the last fault the slot stands at {confirmed}, \
                     not past {before}; not in Kafka: {missing}"
                );
                return self.act.checker.breach(Breach::Stuck, text);
            }
        }
        self.act.probe("after the round");
        let deadline = Instant::now() + LOOK;
        while !self.act.checker.missing(&committed).is_empty() && Instant::now() < deadline {
            self.act.look(TICK);
        }
        self.act.checker.settle(&committed);
        self.act.committed.lock().unwrap().clear();
    }
}
