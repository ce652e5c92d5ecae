//! Placement of variables on parameter servers.

/// How variables are distributed over the tasks of a job.
#[derive(Clone, Debug, Default)]
pub enum Placement {
    /// The session places them.
    #[default]
    Anywhere,
    /// On the device of the layer that adds them, for networks whose layers are on several devices.
    Beside,
    /// Round-robin over the tasks of a job, as TensorFlow's `replica_device_setter` does.
    RoundRobin {
        /// The job; usually `ps`.
        job: String,
        /// The number of tasks.
        tasks: u32,
    },
    /// On the task that holds the fewest bytes so far.
    Greedy {
        /// The job; usually `ps`.
        job: String,
        /// The number of tasks.
        tasks: u32,
    },
}

/// How a cluster distributes variables over its parameter servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Round-robin, as TensorFlow's `replica_device_setter` does.
    #[default]
    RoundRobin,
    /// On the server that holds the fewest bytes so far, the first of equal ones: TensorFlow's
    /// `GreedyLoadBalancingStrategy` over bytes.
    Greedy,
}

impl Spread {
    /// The placement over this number of tasks of a job.
    pub(crate) fn over(self, job: String, tasks: u32) -> Placement {
        match self {
            Spread::RoundRobin => Placement::RoundRobin { job, tasks },
            Spread::Greedy => Placement::Greedy { job, tasks },
        }
    }
}

/// A placement and its state.
#[derive(Debug, Default)]
pub(crate) struct Placer {
    placement: Placement,
    /// Bytes placed on each task.
    load: Vec<usize>,
    placed: usize,
}

impl Placer {
    /// A placer that has placed nothing.
    pub(crate) fn new(placement: Placement) -> Placer {
        Placer { placement, load: Vec::new(), placed: 0 }
    }

    /// The device for a variable of this size, which a layer on `device` adds.
    pub(crate) fn next(&mut self, bytes: usize, device: &str) -> String {
        let (job, task) = match &self.placement {
            Placement::Anywhere => return String::new(),
            Placement::Beside => return device.to_owned(),
            Placement::RoundRobin { job, tasks } => (job, self.placed % (*tasks).max(1) as usize),
            Placement::Greedy { job, tasks } => {
                self.load.resize((*tasks).max(1) as usize, 0);
                let least = (0..self.load.len()).min_by_key(|task| (self.load[*task], *task));
                (job, least.unwrap_or(0))
            }
        };
        let device = format!("/job:{job}/task:{task}");
        if let Some(load) = self.load.get_mut(task) {
            *load += bytes;
        }
        self.placed += 1;
        device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(placement: Placement, sizes: &[usize]) -> Vec<String> {
        let mut placer = Placer::new(placement);
        sizes.iter().map(|bytes| placer.next(*bytes, "/job:worker/task:1")).collect()
    }

    #[test]
    fn variables_are_dealt() {
        let job = || "ps".to_owned();
        assert_eq!(devices(Placement::Anywhere, &[1]), [""]);
        assert_eq!(devices(Placement::Beside, &[1]), ["/job:worker/task:1"]);
        let robin = devices(Placement::RoundRobin { job: job(), tasks: 2 }, &[9, 9, 9]);
        assert_eq!(robin, ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]);
        let greedy = devices(Placement::Greedy { job: job(), tasks: 2 }, &[100, 10, 10, 90]);
        let tasks = ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:1", "/job:ps/task:1"];
        assert_eq!(greedy, tasks);
    }
}
