#include "runtime/profiling/calibrate.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdio>

#include "runtime/error.h"
#include "runtime/launch/pin_to_cores.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/run_main.h"
#include "runtime/optimizers/optimizer.h"
#include "runtime/profiling/measure.h"
#include "runtime/profiling/measure_products.h"
#include "runtime/profiling/measure_rates.h"

namespace graphpipe::runtime {
namespace {

/// The fastest step counts, of so many that some are undisturbed on both cores.
constexpr MessageRounds kMessageRounds = {.warm_ups = 2, .steps = 50, .fastest = true};

/// Seconds to update a weight; of those that fit in no cache several are updated in turn, as in a step of a model. The
/// products of an optimizer that multiplies matrices are priced apart, as they grow faster than bytes: it is given a
/// vector.
double update_seconds(const wire::OptimizerEntry& entry, int64_t rows, int64_t columns) {
  const bool is_large = rows * columns * static_cast<int64_t>(sizeof(float)) >= kBeyondCachesOfCpus;
  const size_t count = is_large ? 4 : 1;
  Optimizer optimizer(entry.name, std::vector<UpdateTerms>(count, {.numbers = entry.defaults}));
  std::vector<at::Tensor> weights, gradients;
  for (size_t i = 0; i < count; ++i) {
    weights.push_back(entry.orthogonalises ? at::zeros({rows * columns}) : at::zeros({rows, columns}));
    gradients.push_back(at::zeros_like(weights.back()));
    optimizer.step(i, weights[i], gradients[i]);  // makes its state
  }
  size_t next = 0;
  return seconds_of([&] {
    const size_t i = next++ % count;
    optimizer.step(i, weights[i], gradients[i]);
  });
}

/// Per weight tensor, and per byte of it.
void print_update(const wire::OptimizerEntry& entry) {
  const UpdateSeconds update =
      measure_update([&](int64_t rows, int64_t columns) { return update_seconds(entry, rows, columns); });
  std::printf("update %s %.6e %.6e\n", entry.name, update.tensor, update.byte);
}

void print_rates(const char* type, const SixteenBitRates& rates) {
  std::printf("%s %.6e %.6e %.6e\n", type, rates.products, rates.convolutions, rates.attention);
}

void measure_operators(bool print) {
  const DeviceRates rates = measure_rates();
  if (!print) return;
  std::printf("device %.6e %.6e %.6e\n", rates.products, rates.memory, rates.operator_seconds);
  std::printf("kernels %.6e %.6e %.6e %.6e %.6e\n", rates.convolutions, rates.winograd, rates.depthwise,
              rates.attention, rates.functions);
  print_rates("bfloat16", rates.bfloat16);
  print_rates("float16", rates.float16);
  std::printf("weights %.6e\n", rates.weights);
  for (const wire::OptimizerEntry& entry : wire::optimizers()) print_update(entry);
}

void measure_runtime(Store* store, int32_t rank, bool may_spin) {
  const std::unique_ptr<Device> cpu = open_cpu();
  const double bare = rank == 0 ? measure_bare_item(*cpu, kMessageRounds) : 0;
  const MessageSeconds busy = rank == 0 ? measure_messages_of_one(*cpu, bare, kMessageRounds) : MessageSeconds{};
  double addition = 0;
  if (store != nullptr) {
    const MessageSeconds link = measure_link(*cpu, *store, rank, may_spin, bare, busy, kMessageRounds);
    if (may_spin) addition = measure_additions_of_two(*cpu, *store, rank, may_spin, link, busy, kMessageRounds);
    if (rank == 0) std::printf("link %.6e %.6e\n", link.constant, link.per_byte);
  }
  if (rank == 0) std::printf("runtime %.6e %.6e %.6e %.6e\n", bare / 4, busy.constant, busy.per_byte, addition);
}

void calibrate(const wire::RunOptions& options) {
  if (!options.launch.folder.empty()) return measure_products(options.launch.folder);
  const int32_t rank = std::max(options.launch.rank, 0), ranks = std::max(options.launch.world_size, 1);
  const int threads = std::max(1, options.launch.threads);
  if (ranks > 2) fail(Code::kUsage, "the calibration runs as one rank or as two", "pass --world-size 2");
  const bool own_cores = pin_to_cores(rank, ranks, threads);
  std::unique_ptr<ControlPlane> store;
  if (ranks == 2) store = join_run(find_rendezvous(options, rank, ranks));
  if (store) store->barrier("ready", ranks);
  // Processes that share a core would disturb each other's measurements.
  if (rank == 0 || own_cores) measure_operators(rank == 0);
  if (store) store->barrier("measured", ranks);
  measure_runtime(store.get(), rank, own_cores);
  // Rank 0 serves the store: it stays until the other rank needs nothing more.
  if (store && rank == 0) store->get("left");
  if (store && rank == 1) store->set("left", "1");
  if (store) store->leave("");
}

}  // namespace

int run_calibrate(int argc, char** argv) {
  end_process(run_main(PlanTable{}, argc, argv, calibrate, [] { return std::string("in the calibration"); }));
}

}  // namespace graphpipe::runtime
