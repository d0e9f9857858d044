"""Trains, evaluates, saves and loads a policy. The folder ``policy`` must not exist yet."""

import jax

import ppo_mask as pm

env = pm.envs.probes.MaskedLocks()  # 32 actions, two of them allowed; the best return is 8
config = pm.PPO(num_envs=64, num_steps=32, learning_rate=3e-3, ent_coef=0.01)
model = pm.network_for(env, "mlp", hidden_dim=32, key=jax.random.key(0))
trainer, history = pm.Trainer(env, config), pm.History()
state = trainer.train(trainer.init(model, jax.random.key(1)), 100_000, callbacks=[history])
pm.save_policy(state.model, "policy")
result = pm.evaluate(pm.load_policy("policy").model, env, jax.random.key(2), num_episodes=64)
print(f"returns {history['train/mean_episode_return'].round(1)}, then {result.mean_return:.1f}")
