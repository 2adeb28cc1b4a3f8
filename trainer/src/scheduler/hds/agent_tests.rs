//! The agent's losses against loops over plain numbers, its gradients against finite differences, and
//! the temperature.

use super::*;
use crate::scheduler::replay::Transition;
use crate::scheduler::state::State;

const LAYOUT: RowLayout = RowLayout {
    domains: 3,
    globals: 3,
};
const SIZING: NetworkSizing = NetworkSizing {
    width: 8,
    blocks: 1,
    heads: 2,
    hidden: 12,
};

fn wave(seed: f64, n: usize) -> Vec<f64> {
    (0..n).map(|i| (seed + 1.7 * i as f64).sin()).collect()
}

fn state(seed: f64) -> State {
    let f32s = |values: Vec<f64>| values.into_iter().map(|v| v as f32).collect();
    State {
        domains: f32s(wave(seed, 9)),
        globals: f32s(wave(seed + 0.4, 3)),
    }
}

fn replay(rows: usize) -> Replay {
    let mut replay = Replay::new(LAYOUT, rows);
    for row in 0..rows {
        let seed = row as f64;
        let raw: Vec<f64> = wave(seed + 0.1, 3).iter().map(|v| v.exp()).collect();
        let sum: f64 = raw.iter().sum();
        let action: Vec<f64> = raw.iter().map(|v| v / sum).collect();
        let pushed = replay.push(&Transition {
            state: &state(seed),
            action: &action,
            rewards: &wave(seed + 0.2, 3),
            next: &state(seed + 1.0),
        });
        assert!(pushed);
    }
    replay
}

fn agent(coupling: Coupling, normalize_rewards: bool) -> Agent {
    let config = HdsConfig {
        coupling,
        normalize_rewards,
        ..HdsConfig::default()
    };
    let agent = Agent::new(&config, SIZING, LAYOUT, 3, Device::Cpu, Kind::Double);
    // Away from the near-zero start, and the targets away from the critics.
    for (network, shift) in [
        (&agent.actor, 0.0),
        (&agent.critics, 1.0),
        (&agent.targets, 2.0),
    ] {
        for (i, leaf) in network.parameters.leaves().into_iter().enumerate() {
            let n = leaf.numel();
            let values: Vec<f64> = wave(i as f64 + shift, n).iter().map(|v| 0.4 * v).collect();
            no_grad(|| {
                leaf.detach()
                    .copy_(&Tensor::from_slice(&values).view_as(leaf))
            });
        }
    }
    agent
}

fn noise(seed: f64, rows: usize) -> Tensor {
    Tensor::from_slice(&wave(seed, rows * 3)).view([rows as i64, 3])
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).contiguous().view(-1)).unwrap()
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!(
            (g - w).abs() < 1e-9 * w.abs().max(1.0),
            "{got:?} is not {want:?}"
        );
    }
}

#[test]
fn goals_are_those_of_the_formulas() {
    let rows = 4;
    let replay = replay(rows);
    let places: Vec<usize> = (0..rows).collect();
    for coupling in [Coupling::Vector, Coupling::Expected, Coupling::Factored] {
        let agent = agent(coupling, false);
        let batch = Minibatch::gather(&replay, LAYOUT, &places, Device::Cpu, Kind::Double);
        let rewards = agent.coupled_rewards(&batch, agent.reward_scale(&replay));
        let got = numbers(&agent.goal(&batch, &rewards, &noise(5.0, rows)));
        // By loops, from the networks' raw outputs.
        let policy = agent.distribution(&batch.next_features_bkf, &batch.next_globals_bg);
        let draw = policy.draw(&noise(5.0, rows), agent.floor);
        let (a, log) = (numbers(&draw.mixture_bk), numbers(&draw.log_density_b));
        let scaled = (&draw.mixture_bk * 3.0 - 1.0).unsqueeze(-1);
        let inputs = Tensor::cat(&[&batch.next_features_bkf, &scaled], -1);
        let heads = numbers(&agent.targets.forward(&inputs, &batch.next_globals_bg));
        let head = |critic: usize, b: usize, i: usize| heads[(critic * rows + b) * 3 + i];
        let mut want = Vec::new();
        for (b, &log) in log.iter().enumerate() {
            let row = replay.row(b);
            let value = |r: usize| f64::from(row[r]);
            let entropy = 0.2 * log;
            let mixed = |critic| {
                (0..3)
                    .map(|i| a[b * 3 + i] * head(critic, b, i))
                    .sum::<f64>()
            };
            let least = f64::min(mixed(0), mixed(1));
            match coupling {
                Coupling::Vector => want.extend((0..3).map(|i| {
                    let least = f64::min(head(0, b, i), head(1, b, i));
                    value(LAYOUT.rewards() + i) + 0.95 * (least - entropy)
                })),
                Coupling::Expected => {
                    let reward: f64 = (0..3)
                        .map(|i| value(LAYOUT.action() + i) * value(LAYOUT.rewards() + i))
                        .sum();
                    want.push(reward + 0.95 * (least - entropy));
                }
                Coupling::Factored => want
                    .extend((0..3).map(|i| value(LAYOUT.rewards() + i) + 0.95 * (least - entropy))),
            }
        }
        for (g, w) in got.iter().zip(&want) {
            assert!(
                (g - w).abs() < 1e-6,
                "{coupling:?}: {got:?} is not {want:?}"
            );
        }
        assert_eq!(got.len(), want.len());
    }
}

#[test]
fn factored_heads_average_to_the_expected_value() {
    let replay = replay(4);
    let batch = Minibatch::gather(&replay, LAYOUT, &[0, 1, 2, 3], Device::Cpu, Kind::Double);
    let value = |coupling| {
        let agent = agent(coupling, false);
        agent.value(
            &agent.critics,
            &batch.features_bkf,
            &batch.globals_bg,
            &batch.action_bk,
        )
    };
    let (factored, expected) = (value(Coupling::Factored), value(Coupling::Expected));
    close(&numbers(&factored.total), &numbers(&expected.total));
    assert_eq!(factored.fit.size(), [2, 4, 3]);
    assert_eq!(expected.fit.size(), [2, 4]);
}

#[test]
fn the_policy_losss_gradient_matches_finite_differences() {
    let replay = replay(4);
    let batch = Minibatch::gather(&replay, LAYOUT, &[0, 1, 2, 3], Device::Cpu, Kind::Double);
    for coupling in [Coupling::Vector, Coupling::Expected, Coupling::Factored] {
        let mut agent = agent(coupling, true);
        let loss = |agent: &Agent| agent.actor_loss(&batch, &noise(2.0, 4)).0;
        let gradients = Tensor::run_backward(
            &[loss(&agent)],
            &agent.actor.parameters.leaves(),
            false,
            false,
        );
        assert!(agent.actor.parameters.set_gradients(&gradients));
        for parameter in agent.actor.parameters.optimized() {
            let flat = parameter.tensor.detach();
            for i in (0..flat.numel() as i64).step_by(41) {
                let mut entry = flat.get(i);
                let step = 1e-6;
                let _ = entry.g_add_scalar_(step);
                let above = loss(&agent).double_value(&[]);
                let _ = entry.g_add_scalar_(-2.0 * step);
                let below = loss(&agent).double_value(&[]);
                let _ = entry.g_add_scalar_(step);
                let want = (above - below) / (2.0 * step);
                let got = parameter.tensor.grad().double_value(&[i]);
                assert!(
                    (got - want).abs() < 1e-5 * want.abs().max(1e-2),
                    "{i}: {got} {want}"
                );
            }
        }
    }
}

#[test]
fn an_update_moves_critics_actor_temperature_and_targets() {
    let replay = replay(8);
    let places: Vec<usize> = (0..8).collect();
    let mut agent = agent(Coupling::Factored, true);
    let probe = |agent: &Agent| {
        [&agent.actor, &agent.critics, &agent.targets]
            .map(|network| numbers(&network.parameters.named()[0].1)[0])
    };
    let batch = Minibatch::gather(&replay, LAYOUT, &places, Device::Cpu, Kind::Double);
    let (before, temperature) = (probe(&agent), agent.temperature());
    let first = agent.update(
        &batch,
        agent.reward_scale(&replay),
        &noise(1.0, 8),
        &noise(2.0, 8),
    );
    let after = probe(&agent);
    assert!(first.applied);
    // Adam's first step is the learning rate, whatever the gradient.
    for (b, a) in before[..2].iter().zip(&after[..2]) {
        assert!(((a - b).abs() - 1e-3).abs() < 1e-6, "{before:?} {after:?}");
    }
    close(&after[2..], &[0.99 * before[2] + 0.01 * after[1]]);
    let rises = first.entropy < agent.entropy_target();
    let want = temperature
        * if rises {
            1e-3f64.exp()
        } else {
            (-1e-3f64).exp()
        };
    close(&[agent.temperature()], &[want]);
    let mut last = first;
    for i in 0..200 {
        last = agent.update(
            &batch,
            agent.reward_scale(&replay),
            &noise(f64::from(i), 8),
            &noise(2.5 * f64::from(i), 8),
        );
    }
    assert!(
        last.critic_loss < 0.5 * first.critic_loss,
        "{first:?} {last:?}"
    );
}

#[test]
fn an_update_with_numbers_that_are_not_finite_changes_nothing() {
    let replay = replay(4);
    let batch = Minibatch::gather(&replay, LAYOUT, &[0, 1, 2, 3], Device::Cpu, Kind::Double);
    let mut agent = agent(Coupling::Factored, true);
    let all = |agent: &Agent| -> Vec<f64> {
        [&agent.actor, &agent.critics, &agent.targets]
            .into_iter()
            .flat_map(|network| network.parameters.leaves())
            .flat_map(numbers)
            .chain([agent.temperature()])
            .collect()
    };
    let before = all(&agent);
    let report = agent.update(
        &batch,
        agent.reward_scale(&replay),
        &(noise(1.0, 4) * f64::NAN),
        &noise(2.0, 4),
    );
    assert!(!report.applied);
    assert_eq!(all(&agent), before);
}

#[test]
fn the_temperature_settles_at_a_target_that_can_be_met_and_not_at_the_papers() {
    // K = 8: the greatest entropy possible is −ln 7! = −8.53, below −K.
    let layout = RowLayout {
        domains: 8,
        globals: 3,
    };
    let mut replay = Replay::new(layout, 1);
    let state = State {
        domains: vec![0.5; 24],
        globals: vec![0.5; 3],
    };
    replay.push(&Transition {
        state: &state,
        action: &[0.125; 8],
        rewards: &[0.0; 8],
        next: &state,
    });
    let run = |entropy_target| {
        let config = HdsConfig {
            entropy_target,
            learning_rate: 3e-3,
            weight_floor: 0.0,
            ..HdsConfig::default()
        };
        let mut agent = Agent::new(&config, SIZING, layout, 3, Device::Cpu, Kind::Float);
        let batch = Minibatch::gather(&replay, layout, &[0; 32], Device::Cpu, Kind::Float);
        let mut normals =
            hds::random::RandomStream::new(1, hds::random::Purpose::Learning).sequence(0);
        let mut noise = || {
            let values: Vec<f32> = (0..32 * 8).map(|_| normals.next_normal() as f32).collect();
            Tensor::from_slice(&values).view([32, 8])
        };
        let (mut temperatures, mut entropy) = (Vec::new(), 0.0);
        for _ in 0..600 {
            let report = agent.update(&batch, agent.reward_scale(&replay), &noise(), &noise());
            entropy = 0.95 * entropy + 0.05 * report.entropy;
            temperatures.push(agent.temperature());
        }
        (temperatures, entropy, agent.entropy_target())
    };
    let (temperatures, entropy, target) = run(EntropyTarget::Paper);
    assert!(target == -8.0 && entropy < target);
    assert!(
        temperatures[599] > temperatures[299] * 1.3,
        "{temperatures:?}"
    );
    let (temperatures, entropy, target) = run(EntropyTarget::Relative);
    // With nothing to gain the policy is more spread than asked for, and α falls towards 0.
    assert!(
        entropy > target && temperatures[599] < 0.2,
        "{entropy} {target} {}",
        temperatures[599]
    );
}
