"""RLlib: proximal policy optimisation on CartPole, some iterations."""

from ray.rllib.algorithms.ppo import PPOConfig

config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=1, num_cpus_per_env_runner=0.5)
    .training(train_batch_size_per_learner=500, num_epochs=3, lr=0.0005)
)
algorithm = config.build_algo()
returns = []
for _ in range(3):
    result = algorithm.train()
    returns.append(result["env_runners"]["episode_return_mean"])
print(f"iterations {len(returns)} returns above 10: {min(returns) > 10}")
algorithm.stop()
