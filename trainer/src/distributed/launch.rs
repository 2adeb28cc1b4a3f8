//! What a launcher says of this process: its rank, how many there are, and where they meet.
//!
//! In: environment variables of `torchrun`, `mpirun` or `srun`. Out: a [`Launch`], or nothing for a process on its own.
//! Always holds: rank < world; the innermost launcher wins (`srun torchrun …` is torchrun's).

use super::GroupError;

/// torch's default port.
const DEFAULT_PORT: u16 = 29_500;

/// Variables of one family of launchers.
struct Family {
    rank: &'static str,
    world: &'static [&'static str],
    local_rank: &'static str,
    local_world: &'static str,
}

/// In the order in which they are asked: a launcher inside another sets those that come first.
const FAMILIES: [Family; 4] = [
    Family {
        rank: "RANK",
        world: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_world: "LOCAL_WORLD_SIZE",
    },
    Family {
        rank: "OMPI_COMM_WORLD_RANK",
        world: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Family {
        rank: "SLURM_PROCID",
        // A step may have fewer tasks than its job.
        world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_world: "SLURM_STEP_TASKS_PER_NODE",
    },
    Family {
        rank: "PMI_RANK",
        world: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_world: "MPI_LOCALNRANKS",
    },
];

/// One process of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// This process, from 0.
    pub rank: usize,
    /// Number of processes, at least 2.
    pub world: usize,
    /// This process among those of its machine, from 0: its GPU.
    pub local_rank: usize,
    /// Processes on this machine.
    pub local_world: usize,
    /// Machine of rank 0.
    pub address: String,
    /// Port on it.
    pub port: u16,
    /// Whether the launcher serves the store itself, so that rank 0 does not.
    pub hosted: bool,
    /// Number of the attempt, where the launcher starts failed runs again.
    pub attempt: String,
    /// The variable that says how many processes there are.
    pub variable: &'static str,
}

impl Launch {
    /// Reads this process's environment; `None` for a process on its own.
    ///
    /// # Errors
    /// A variable that is missing or no number.
    pub fn from_environment() -> Result<Option<Self>, GroupError> {
        Self::read(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// As [`Self::from_environment`], from any environment.
    ///
    /// # Errors
    /// As [`Self::from_environment`].
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, GroupError> {
        let Some(family) = FAMILIES
            .iter()
            .find(|family| get(family.rank).is_some() || get(family.world[0]).is_some())
        else {
            return Ok(None);
        };
        let variable = family
            .world
            .iter()
            .copied()
            .find(|name| get(name).is_some());
        let Some(variable) = variable else {
            // Slurm sets its rank in every shell of a job.
            if family.rank == "SLURM_PROCID" {
                return Ok(None);
            }
            let reason = format!("is not set, and {} is", family.rank);
            return Err(GroupError::Variable {
                variable: family.world[0],
                reason,
            });
        };
        let number = |name: &'static str| -> Result<Option<usize>, GroupError> {
            get(name)
                .map(|text| {
                    text.trim().parse().map_err(|_| GroupError::Variable {
                        variable: name,
                        reason: format!("is {text:?}, must be a whole number"),
                    })
                })
                .transpose()
        };
        let world = number(variable)?.unwrap_or(1);
        if world == 1 {
            return Ok(None);
        }
        let Some(rank) = number(family.rank)? else {
            return Err(GroupError::Variable {
                variable: family.rank,
                reason: format!("is not set, and {variable} is"),
            });
        };
        if rank >= world {
            return Err(GroupError::Variable {
                variable: family.rank,
                reason: format!("is {rank}, must be below {variable} = {world}"),
            });
        }
        // Slurm writes `4(x2),3`: so many on each machine.
        let local_world = get(family.local_world).and_then(|text| leading_number(&text));
        let address = address(&get, family, local_world == Some(world))?;
        let here = ["127.0.0.1", "localhost", "::1"].contains(&address.as_str());
        let local_world = local_world.unwrap_or(if here { world } else { 1 });
        let local_rank = number(family.local_rank)?.unwrap_or(if here { rank } else { 0 });
        let port = match get("MASTER_PORT") {
            Some(text) => text.trim().parse().map_err(|_| GroupError::Variable {
                variable: "MASTER_PORT",
                reason: format!("is {text:?}, must be a port"),
            })?,
            // Jobs on one machine must not meet each other.
            None => match get("SLURM_JOB_ID").and_then(|id| id.parse::<u64>().ok()) {
                Some(job) if family.rank == "SLURM_PROCID" => 20_000 + (job % 10_000) as u16,
                _ => DEFAULT_PORT,
            },
        };
        Ok(Some(Self {
            rank,
            world,
            local_rank,
            local_world,
            address,
            port,
            hosted: get("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True"),
            attempt: get("TORCHELASTIC_RESTART_COUNT").unwrap_or_else(|| "0".to_owned()),
            variable,
        }))
    }
}

fn address(
    get: &impl Fn(&str) -> Option<String>,
    family: &Family,
    one_machine: bool,
) -> Result<String, GroupError> {
    if let Some(address) = get("MASTER_ADDR") {
        return Ok(address);
    }
    if one_machine {
        return Ok("127.0.0.1".to_owned());
    }
    let nodes = [
        "SLURM_STEP_NODELIST",
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
    ];
    let first = nodes
        .iter()
        .find_map(|name| get(name))
        .map(|list| first_host(&list));
    match first {
        Some(host) if family.rank == "SLURM_PROCID" => Ok(host),
        _ => Err(GroupError::Variable {
            variable: "MASTER_ADDR",
            reason:
                "is not set; give the name or address of rank 0's machine, the same on every rank"
                    .into(),
        }),
    }
}

/// The first machine of Slurm's `node[03-05,7],other`: `node03`.
fn first_host(list: &str) -> String {
    match list.find(['[', ',']) {
        Some(at) if list[at..].starts_with('[') => {
            let inner = &list[at + 1..];
            let end = inner.find(['-', ',', ']']).unwrap_or(inner.len());
            let after = inner.find(']').map_or("", |close| &inner[close + 1..]);
            let after = &after[..after.find(',').unwrap_or(after.len())];
            format!("{}{}{after}", &list[..at], &inner[..end])
        }
        Some(at) => list[..at].to_owned(),
        None => list.to_owned(),
    }
}

fn leading_number(text: &str) -> Option<usize> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Launch>, GroupError> {
        Launch::read(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn launch(variables: &[(&str, &str)]) -> Launch {
        read(variables).unwrap().unwrap()
    }

    #[test]
    fn a_process_on_its_own_is_no_launch() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap(), None);
        assert_eq!(read(&[("SLURM_PROCID", "0")]).unwrap(), None);
    }

    #[test]
    fn torchruns_variables_are_read_and_win_over_slurms() {
        let got = launch(&[
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "gpu-1"),
            ("MASTER_PORT", "1234"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
        ]);
        let want = Launch {
            rank: 5,
            world: 8,
            local_rank: 1,
            local_world: 4,
            address: "gpu-1".into(),
            port: 1234,
            hosted: true,
            attempt: "2".into(),
            variable: "WORLD_SIZE",
        };
        assert_eq!(got, want);
    }

    #[test]
    fn slurms_variables_give_the_first_machine_and_a_port_of_the_job() {
        let got = launch(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "6"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
            ("SLURM_JOB_NODELIST", "gpu[07-09,11]"),
            ("SLURM_JOB_ID", "123456"),
        ]);
        assert_eq!((got.rank, got.world, got.local_rank), (3, 6, 1));
        assert_eq!((got.address.as_str(), got.port), ("gpu07", 23_456));
        assert_eq!(got.local_world, 2);
        assert_eq!(first_host("a1,a2"), "a1");
        assert_eq!(first_host("a[1-2].x,b"), "a1.x");
        assert_eq!(first_host("one"), "one");
    }

    #[test]
    fn open_mpi_on_one_machine_needs_no_address() {
        let one = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let got = launch(&one);
        assert_eq!((got.address.as_str(), got.port), ("127.0.0.1", 29_500));
        let error = read(&one[..3]).unwrap_err().to_string();
        assert!(error.contains("MASTER_ADDR"), "{error}");
    }

    #[test]
    fn what_is_missing_or_no_number_is_named() {
        for (variables, named) in [
            (&[("RANK", "0")][..], "WORLD_SIZE"),
            (&[("WORLD_SIZE", "2")], "RANK"),
            (&[("WORLD_SIZE", "two"), ("RANK", "0")], "WORLD_SIZE"),
            (&[("WORLD_SIZE", "2"), ("RANK", "2")], "RANK"),
            (&[("WORLD_SIZE", "2"), ("RANK", "1")], "MASTER_ADDR"),
            (
                &[
                    ("WORLD_SIZE", "2"),
                    ("RANK", "1"),
                    ("MASTER_ADDR", "a"),
                    ("MASTER_PORT", "x"),
                ],
                "MASTER_PORT",
            ),
        ] {
            let error = read(variables).unwrap_err().to_string();
            assert!(error.starts_with(named), "{error}");
        }
    }
}
