//! Which part of a build this machine makes: given, or told by a batch system.
//!
//! In: `i/n`, `auto` or `auto/n`, and the environment. Out: a [`Part`]. Always holds: the environment is looked at only where `auto` asks for
//! it, so a build inside a batch job is a whole one unless the user says otherwise.

use std::fmt;
use std::str::FromStr;

use hds_indexer::input::Part;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardOption {
    /// This part.
    Given(Part),
    /// What the batch system says, of so many where it does not say.
    Auto(Option<u32>),
}

impl FromStr for ShardOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} names no part; give i/n, i from 1 to n, or auto, or auto/n, for example 2/8"
            )
        };
        match text.split_once('/') {
            None if text == "auto" => Ok(Self::Auto(None)),
            Some(("auto", count)) => match count.parse() {
                Ok(count) if count > 0 => Ok(Self::Auto(Some(count))),
                _ => Err(wrong()),
            },
            _ => text.parse().map(Self::Given).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for ShardOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(part) => part.fmt(f),
            Self::Auto(None) => f.write_str("auto"),
            Self::Auto(Some(count)) => write!(f, "auto/{count}"),
        }
    }
}

const SLURM_ID: &str = "SLURM_ARRAY_TASK_ID";
const SLURM_COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
const SLURM_MIN: &str = "SLURM_ARRAY_TASK_MIN";
const SLURM_MAX: &str = "SLURM_ARRAY_TASK_MAX";
const KUBERNETES: &str = "JOB_COMPLETION_INDEX";

impl ShardOption {
    /// The part that is meant; `variable` looks into the environment.
    ///
    /// # Errors
    /// If the batch system says nothing, or nothing that tells the part for sure.
    pub(crate) fn part(self, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Part> {
        let count = match self {
            Self::Given(part) => return Ok(part),
            Self::Auto(count) => count,
        };
        let number = |name: &str| match variable(name) {
            None => Ok(None),
            Some(text) => match text.parse::<u32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => anyhow::bail!("--shard {self}: {name} is {text:?}, a number is wanted"),
            },
        };
        let (from, place, of) = match (number(SLURM_ID)?, number(KUBERNETES)?, count) {
            (Some(_), Some(_), _) => anyhow::bail!(
                "--shard {self}: both {SLURM_ID} and {KUBERNETES} are set; give --shard i/n"
            ),
            (None, None, _) => anyhow::bail!(
                "--shard {self}: neither {SLURM_ID} nor {KUBERNETES} is set; give --shard i/n, i from 1 to n"
            ),
            (None, Some(_), None) => anyhow::bail!(
                "--shard auto: {KUBERNETES} does not say of how many; give --shard auto/n, n as the job's completions"
            ),
            (None, Some(index), Some(count)) => (KUBERNETES, index, count),
            // With a count the ids are from 0, so that one task can be run again alone.
            (Some(id), None, Some(count)) => (SLURM_ID, id, count),
            (Some(id), None, None) => {
                let Some(count) = number(SLURM_COUNT)? else {
                    anyhow::bail!(
                        "--shard auto: {SLURM_COUNT} is not set; give --shard auto/n and sbatch --array=0-(n-1)"
                    );
                };
                let least = number(SLURM_MIN)?.unwrap_or(0);
                let most = number(SLURM_MAX)?
                    .unwrap_or_else(|| least.saturating_add(count).saturating_sub(1));
                if least > 1 || most.checked_sub(least) != count.checked_sub(1) {
                    anyhow::bail!(
                        "--shard auto: the array's {count} ids from {least} to {most} do not tell the parts of a whole; \
                         give --shard auto/n and sbatch --array=0-(n-1), some of which may be run again"
                    );
                }
                (SLURM_ID, id.saturating_sub(least), count)
            }
        };
        match place
            .checked_add(1)
            .and_then(|number| Part::new(number, of))
        {
            Some(part) => Ok(part),
            None => anyhow::bail!("--shard {self}: {from} is {place}, below {of} is wanted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(option: &str, environment: &[(&str, &str)]) -> Result<String, String> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let option: ShardOption = option.parse()?;
        option
            .part(variable)
            .map(|p| p.to_string())
            .map_err(|e| e.to_string())
    }

    fn slurm<'e>(
        id: &'e str,
        count: &'e str,
        min: &'e str,
        max: &'e str,
    ) -> [(&'e str, &'e str); 4] {
        [
            (SLURM_ID, id),
            (SLURM_COUNT, count),
            (SLURM_MIN, min),
            (SLURM_MAX, max),
        ]
    }

    /// The option, the environment, and what comes of it.
    type Case<'c> = (&'c str, &'c [(&'c str, &'c str)], &'c str);

    #[test]
    fn batch_systems_tell_the_part() {
        let good: &[Case] = &[
            ("2/5", &[(SLURM_ID, "9")], "2/5"),
            ("auto", &slurm("0", "4", "0", "3"), "1/4"),
            ("auto", &slurm("3", "4", "0", "3"), "4/4"),
            ("auto", &slurm("1", "4", "1", "4"), "1/4"),
            ("auto", &slurm("4", "4", "1", "4"), "4/4"),
            ("auto", &[(SLURM_ID, "2"), (SLURM_COUNT, "3")], "3/3"),
            // One of eight run again alone.
            ("auto/8", &slurm("5", "1", "5", "5"), "6/8"),
            ("auto/3", &[(KUBERNETES, "0")], "1/3"),
            ("auto/3", &[(KUBERNETES, "2")], "3/3"),
        ];
        for (option, environment, want) in good {
            assert_eq!(
                part(option, environment).as_deref(),
                Ok(*want),
                "{option} {environment:?}"
            );
        }
    }

    #[test]
    fn what_does_not_tell_the_part_for_sure_is_refused() {
        let bad: &[Case] = &[
            ("auto", &[], "neither"),
            ("auto/4", &[], "neither"),
            ("auto", &[(KUBERNETES, "1")], "auto/n"),
            ("auto/3", &[(KUBERNETES, "3")], "below 3"),
            ("auto/3", &[(KUBERNETES, "x")], "a number is wanted"),
            ("auto", &[(SLURM_ID, "1")], SLURM_COUNT),
            ("auto", &slurm("5", "1", "5", "5"), "run again"),
            ("auto", &slurm("4", "3", "0", "4"), "do not tell"),
            ("auto/4", &[(SLURM_ID, "4")], "below 4"),
            ("auto/4", &[(SLURM_ID, "0"), (KUBERNETES, "0")], "both"),
            ("auto/0", &[], "names no part"),
            ("auto/x", &[], "names no part"),
            ("0/4", &[], "names no part"),
            ("5/4", &[], "names no part"),
            ("4", &[], "i/n"),
        ];
        for (option, environment, want) in bad {
            let error = part(option, environment).unwrap_err();
            assert!(error.contains(want), "{option} {environment:?}: {error}");
        }
    }
}
