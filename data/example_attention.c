/* Splits one causal attention over 2 x 2 ranks, runs them, and compares with full attention. */
#include <math.h>
#include <stdio.h>
#include <sim/sim.h>

#define TRY(call) do { if (call) return fprintf(stderr, "%s\n", error.text); } while (0)
enum { P = 4, S = 101, H = 6, D = 32, ROW = H * D };

int main(void)
{
	static double q[S * ROW], k[S * ROW], v[S * ROW], o[S * ROW], full[S * ROW], lse[S * H],
		*in[] = {q, k, v};
	struct cpa_problem problem = {.B = 1, .Sq = S, .Skv = S, .Hq = H, .Hkv = H, .D = D, .Dv = D,
		.dtype = CPA_DTYPE_FP64, .scale = 1 / sqrt(D), .rule = {.causal = true}};
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &problem);
	struct cpa_partition *shards;
	struct cpa_device *device;
	struct cpa_fake_world *world;
	struct cpa_schedule *plans[P];
	struct cpa_exec *ranks[P];
	struct cpa_error error;
	double worst = 0;

	for (int i = 0; i < 3 * S * ROW; i++)
		in[i % 3][i / 3] = 3 * sin(i * 0.7 + i % 11);
	config.ring_degree = config.ulysses_degree = 2;
	TRY(cpa_partition_create(&problem, &config, &shards, &error));
	TRY(cpa_device_create("cpu", &device, &error));
	TRY(cpa_fake_world_create(P, CPA_FAKE_RENDEZVOUS, 1, &world, &error));
	for (int r = 0; r < P; r++) { /* plan, allocate, and hand each rank its tokens */
		TRY(cpa_plan_create(shards, r, &plans[r], &error));
		TRY(cpa_exec_create(plans[r], &problem, device, cpa_fake_world_comm(world, r),
			&(struct cpa_exec_options){.poison = true}, &ranks[r], &error));
		for (int i = 0; i < 3; i++) /* CPA_TENSOR_Q, K, V */
			TRY(device->ops->upload(device, cpa_exec_memory(ranks[r],
				cpa_exec_find(ranks[r], CPA_ROLE_INPUT, i)), in[i] + shards->q.cuts->offset[r] * ROW,
				cpa_cut_size(shards->q.cuts, r) * ROW * sizeof *q, &error));
	}
	TRY(cpa_fake_run(world, ranks, &error));
	for (int r = 0; r < P; r++) {
		TRY(device->ops->download(device, o + shards->q.cuts->offset[r] * ROW, cpa_exec_memory(ranks[r],
			cpa_exec_find(ranks[r], CPA_ROLE_OUTPUT, CPA_TENSOR_O)),
			cpa_cut_size(shards->q.cuts, r) * ROW * sizeof *o, &error));
		cpa_exec_destroy(ranks[r]);
		cpa_schedule_destroy(plans[r]);
	}
	TRY(cpa_ref_attention(&problem, cpa_view_bshd(q, problem.dtype, S, H, D),
		cpa_view_bshd(k, problem.dtype, S, H, D), cpa_view_bshd(v, problem.dtype, S, H, D), full,
		lse, &error));
	for (int i = 0; i < S * ROW; i++)
		worst = fmax(worst, fabs(o[i] - full[i]));
	printf("%d ranks differ from full attention by %.1e at most\n", P, worst);
	cpa_fake_world_destroy(world);
	cpa_device_destroy(device);
	cpa_partition_destroy(shards);
	return !(worst < 1e-12);
}
