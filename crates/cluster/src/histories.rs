//! Random histories of steps over the state machines of master and worker: messages that are late,
//! come twice or get lost, tasks that crash and come back.

use rustc_hash::{FxHashMap, FxHashSet};
use thalweg_tensor::{Error, err};

use crate::master_step::{Action, Actions, Event, MasterStep, Rest};
use crate::step_life::{self, Life};

/// Small, seeded, good enough.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What travels.
#[derive(Clone, Debug)]
enum Message {
    Run {
        step: u64,
        task: usize,
        incarnation: u32,
    },
    /// The caller of `Run` is gone.
    CallerGone {
        step: u64,
        task: usize,
        incarnation: u32,
    },
    Ran {
        step: u64,
        task: usize,
        result: Result<Rest, Error>,
    },
    Want {
        step: u64,
        from: usize,
        to: usize,
    },
    Cleanup {
        step: u64,
        task: usize,
    },
    /// A graph that runs ends.
    Ends {
        step: u64,
        task: usize,
        incarnation: u32,
        error: Option<Error>,
    },
}

struct Task {
    incarnation: u32,
    steps: FxHashMap<u64, Life>,
    ended: FxHashSet<u64>,
    /// Steps that ran here, in any incarnation.
    ran: Vec<(u64, u32)>,
}

struct Master {
    machine: MasterStep,
    finished: usize,
    is_over: bool,
    sent: Vec<bool>,
}

struct World {
    random: Random,
    tasks: Vec<Task>,
    masters: FxHashMap<u64, Master>,
    /// On their way, in no order.
    network: Vec<Message>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let tasks = (0..2 + random.below(3))
            .map(|_| Task {
                incarnation: 0,
                steps: FxHashMap::default(),
                ended: FxHashSet::default(),
                ran: Vec::new(),
            })
            .collect();
        World { random, tasks, masters: FxHashMap::default(), network: Vec::new() }
    }

    fn begin(&mut self, step: u64) {
        let tasks = self.tasks.len();
        let master = Master {
            machine: MasterStep::new(tasks),
            finished: 0,
            is_over: false,
            sent: vec![false; tasks],
        };
        self.masters.insert(step, master);
        self.tell(step, Event::Begin);
        // Workers of the step want each other's tensors, before or after they run.
        for to in 0..tasks {
            let from = self.random.below(tasks);
            if from != to {
                self.network.push(Message::Want { step, from, to });
            }
        }
    }

    fn tell(&mut self, step: u64, event: Event) {
        let mut actions = Actions::new();
        let master = self.masters.get_mut(&step).expect("the step has begun");
        master.machine.on(event, &mut actions);
        for action in actions {
            let master = self.masters.get_mut(&step).expect("the step has begun");
            match action {
                Action::Run(task) => {
                    assert!(!master.sent[task], "step {step} is sent to task {task} twice");
                    master.sent[task] = true;
                    let incarnation = self.tasks[task].incarnation;
                    self.network.push(Message::Run { step, task, incarnation });
                }
                Action::GiveUp(task, _) => {
                    let incarnation = self.tasks[task].incarnation;
                    self.network.push(Message::CallerGone { step, task, incarnation });
                }
                Action::Finish(_) => master.finished += 1,
                Action::Cleanup(task) => self.network.push(Message::Cleanup { step, task }),
            }
        }
    }

    /// A worker takes note of something; what it does about it.
    fn worker(&mut self, task: usize, step: u64, event: step_life::Event) -> step_life::Action {
        let task = &mut self.tasks[task];
        if task.ended.contains(&step) {
            return step_life::Action::Refuse(step_life::is_over(step));
        }
        let is_known = task.steps.contains_key(&step);
        if !is_known && !matches!(event, step_life::Event::Run { .. } | step_life::Event::Wanted) {
            if matches!(event, step_life::Event::Forget) {
                task.ended.insert(step);
            }
            return step_life::Action::None;
        }
        let life = task.steps.entry(step).or_insert_with(Life::new);
        let is_forgotten = matches!(event, step_life::Event::Forget);
        let action = life.on(step, event);
        if matches!(action, step_life::Action::Drop(_)) {
            task.steps.remove(&step);
            if is_forgotten {
                task.ended.insert(step);
            }
        }
        action
    }

    fn run(&mut self, step: u64, task: usize, incarnation: u32) {
        if self.tasks[task].incarnation != incarnation {
            let result = Err(err!(Unavailable, "task {task} is lost"));
            return self.network.push(Message::Ran { step, task, result });
        }
        match self.worker(task, step, step_life::Event::Run { is_partial: false }) {
            step_life::Action::Start => {
                self.tasks[task].ran.push((step, incarnation));
                let error = self.random.chance(10).then(|| err!(Internal, "boom"));
                self.network.push(Message::Ends { step, task, incarnation, error });
            }
            step_life::Action::Refuse(e) => {
                self.network.push(Message::Ran { step, task, result: Err(e) });
            }
            other => panic!("{other:?} for a whole step"),
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Run { step, task, incarnation } => self.run(step, task, incarnation),
            Message::Ends { step, task, incarnation, error } => {
                if self.tasks[task].incarnation == incarnation {
                    self.ends(step, task, error);
                }
            }
            Message::CallerGone { step, task, incarnation } => {
                if self.tasks[task].incarnation == incarnation {
                    let gone = err!(Cancelled, "the master is gone");
                    self.worker(task, step, step_life::Event::Finished(Some(gone)));
                }
            }
            Message::Ran { step, task, result } => self.tell(step, Event::Answered(task, result)),
            Message::Want { step, from, to } => {
                if let step_life::Action::Refuse(_) =
                    self.worker(to, step, step_life::Event::Wanted)
                {
                    // The one who asked fails with that; its own answer tells the master.
                    let error = Some(step_life::is_over(step));
                    let incarnation = self.tasks[from].incarnation;
                    self.network.push(Message::Ends { step, task: from, incarnation, error });
                }
            }
            Message::Cleanup { step, task } => {
                self.worker(task, step, step_life::Event::Forget);
            }
        }
        let over: Vec<u64> = self
            .masters
            .iter()
            .filter(|(_, m)| m.finished > 0 && !m.is_over)
            .map(|(&step, _)| step)
            .collect();
        for step in over {
            self.masters.get_mut(&step).expect("the step has begun").is_over = true;
            self.tell(step, Event::Over);
        }
    }

    /// A graph has ended. If all that it gave was fetched, its task may forget the step itself.
    fn ends(&mut self, step: u64, task: usize, error: Option<Error>) {
        self.worker(task, step, step_life::Event::Finished(error.clone()));
        let waits = |m: &Message| matches!(*m, Message::Want { step: s, to, .. } if (s, to) == (step, task));
        let mut rest = Rest::Something;
        if error.is_none() && !self.network.iter().any(waits) && self.random.chance(70) {
            self.worker(task, step, step_life::Event::Forget);
            rest = Rest::Nothing;
        }
        let result = error.map_or(Ok(rest), Err);
        self.network.push(Message::Ran { step, task, result });
    }

    /// All that a task had is gone; calls to it end.
    fn crash(&mut self, task: usize) {
        let victim = &mut self.tasks[task];
        victim.incarnation += 1;
        victim.steps.clear();
        victim.ended.clear();
        let mut steps: Vec<u64> = self.masters.keys().copied().collect();
        steps.sort_unstable();
        for step in steps {
            let result = Err(err!(Unavailable, "task {task} is lost"));
            self.network.push(Message::Ran { step, task, result });
        }
    }

    /// Delivers messages in any order, some of them twice, until there are none.
    fn play(&mut self, steps: u64) {
        let mut begun = 0;
        while begun < steps || !self.network.is_empty() {
            if begun < steps && (self.network.is_empty() || self.random.chance(20)) {
                begun += 1;
                self.begin(begun);
                continue;
            }
            if self.random.chance(1) {
                let task = self.random.below(self.tasks.len());
                self.crash(task);
            }
            let at = self.random.below(self.network.len());
            let message = self.network.swap_remove(at);
            let is_answer = matches!(message, Message::Ran { .. } | Message::Cleanup { .. });
            if is_answer && self.random.chance(10) {
                self.network.push(message.clone());
            }
            self.deliver(message);
        }
    }

    fn check(&self, seed: u64) {
        for (step, master) in &self.masters {
            assert_eq!(master.finished, 1, "seed {seed}: how often step {step} ended");
            assert!(master.is_over, "seed {seed}: step {step} was not cleaned up");
        }
        for (i, task) in self.tasks.iter().enumerate() {
            let mut ran = task.ran.clone();
            ran.sort_unstable();
            assert!(ran.windows(2).all(|w| w[0] != w[1]), "seed {seed}: a step ran twice on {i}");
            let left: Vec<_> =
                task.steps.iter().filter(|(_, l)| !matches!(l, Life::Awaited { .. })).collect();
            assert!(left.is_empty(), "seed {seed}: task {i} keeps {left:?}");
        }
    }
}

#[test]
fn no_step_hangs_or_runs_twice_or_stays() {
    for seed in 0..20_000 {
        let mut world = World::new(seed);
        world.play(6);
        world.check(seed);
    }
}
