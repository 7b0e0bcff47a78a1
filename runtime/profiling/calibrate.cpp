#include "runtime/profiling/calibrate.h"

#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <thread>

#include "runtime/error.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/run_main.h"
#include "runtime/optimizers/optimizer.h"
#include "runtime/profiling/measure.h"
#include "support/units.h"

namespace graphpipe::runtime {
namespace {

/// Rounds of a measurement; the fastest counts. Each takes at least so long, and no longer than a slice of the system's
/// scheduler: of many some are undisturbed.
constexpr size_t kRounds = 15;
constexpr double kRoundSeconds = 4e-4;
/// Long calls are disturbed little, and are not worth many rounds.
constexpr double kMaxSeconds = 0.1;
/// Steps of messages: fewer than for a profile.
constexpr MessageRounds kMessageRounds = {.warm_ups = 2, .steps = 12, .fastest = true};

/// Seconds of one call.
double seconds_of(const std::function<void()>& call) {
  call();
  const Clock::time_point first = Clock::now();
  call();
  const int calls = std::clamp(static_cast<int>(kRoundSeconds / std::max(seconds_since(first), 1e-8)), 1, 10000);
  double fastest = kInfinity;
  for (size_t round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    fastest = std::min(fastest, seconds_since(start) / calls);
    if (seconds_since(first) > kMaxSeconds) break;
  }
  return fastest;
}

/// Operators that move data more than they compute, as transformers and convolution nets hold them, with the bytes that
/// they read and write per element.
struct Elementwise {
  double bytes;
  at::Tensor (*call)(const at::Tensor&);
};
constexpr Elementwise kElementwise[] = {
    {8, [](const at::Tensor& x) { return at::relu(x); }},
    {12, [](const at::Tensor& x) { return at::add(x, x); }},
    {12, [](const at::Tensor& x) { return at::mul(x, x); }},
    {8, [](const at::Tensor& x) { return at::gelu(x); }},
    {8, [](const at::Tensor& x) { return at::softmax(x, -1); }},
    {8, [](const at::Tensor& x) { return std::get<0>(at::native_layer_norm(x, {x.size(-1)}, {}, {}, 1e-5)); }},
};

/// The mean over calls on tensors so small that only the call counts.
double operator_seconds() {
  const at::Tensor small = at::ones({4, 16}), square = at::ones({16, 16});
  double sum = 0, count = 0;
  const auto add = [&](const std::function<void()>& call) {
    sum += seconds_of(call);
    count += 1;
  };
  for (const Elementwise& op : kElementwise) add([&] { op.call(small); });
  add([&] { at::mm(small, square); });
  add([&] { at::sum(small); });
  return sum / count;
}

/// Without the cost of the call, which may have been disturbed more than the work: a tenth at least is work.
double beside_call(double seconds, double call) { return std::max(seconds - call, seconds / 10); }

/// FLOP/s of float32 matrix products of the sizes of a layer, beside the cost of their calls.
double product_rate(double operator_seconds) {
  constexpr int64_t kSizes[][3] = {{64, 256, 256}, {256, 256, 1024}, {256, 512, 512}};
  double flops = 0, seconds = 0;
  for (const auto& [rows, inner, columns] : kSizes) {
    const at::Tensor a = at::ones({rows, inner}), b = at::ones({inner, columns});
    flops += 2 * static_cast<double>(rows * inner * columns);
    seconds += beside_call(seconds_of([&] { at::mm(a, b); }), operator_seconds);
  }
  return flops / seconds;
}

/// Bytes per second of element-wise operators, on tensors within and beyond the nearest caches.
double memory_rate(double operator_seconds) {
  double bytes = 0, seconds = 0;
  for (const int64_t rows : {256, 4096}) {
    const at::Tensor x = at::ones({rows, 256});
    // Each size counts the same.
    const double weight = 1 / static_cast<double>(rows);
    for (const Elementwise& op : kElementwise) {
      bytes += weight * op.bytes * static_cast<double>(x.numel());
      seconds += weight * beside_call(seconds_of([&] { op.call(x); }), operator_seconds);
    }
  }
  return bytes / seconds;
}

/// Per weight tensor, and per byte of it.
void print_update(const wire::OptimizerEntry& entry) {
  const auto seconds = [&](int64_t rows, int64_t columns) {
    Optimizer optimizer(entry.name, {{.numbers = entry.defaults}});
    // A matrix: some optimizers update those in a way of their own.
    at::Tensor weight = at::zeros({rows, columns});
    const at::Tensor gradient = at::zeros_like(weight);
    return seconds_of([&] { optimizer.step(0, weight, gradient); });
  };
  constexpr int64_t kRows = 512, kColumns = 1024;
  const double small = seconds(8, 8), large = seconds(kRows, kColumns);
  std::printf("update %s %.6e %.6e\n", entry.name, small,
              std::max(0.0, large - small) / static_cast<double>(4 * kRows * kColumns));
}

void measure_operators(bool print) {
  const double call = operator_seconds();
  const double flops = product_rate(call), bytes = memory_rate(call);
  if (!print) return;
  std::printf("device %.6e %.6e %.6e\n", flops, bytes, call);
  for (const wire::OptimizerEntry& entry : wire::optimizers()) print_update(entry);
}

void measure_runtime(Store* store, int32_t rank, bool may_spin) {
  const double bare = rank == 0 ? measure_bare_item(kMessageRounds) : 0;
  const MessageSeconds busy = rank == 0 ? measure_messages_of_one(bare, kMessageRounds) : MessageSeconds{};
  if (store != nullptr) {
    const MessageSeconds link = measure_link(*store, rank, may_spin, bare, busy, kMessageRounds);
    if (rank == 0) std::printf("link %.6e %.6e\n", link.constant, link.per_byte);
  }
  if (rank == 0) std::printf("runtime %.6e %.6e %.6e\n", bare / 4, busy.constant, busy.per_byte);
}

void calibrate(const wire::RunOptions& options) {
  const int32_t rank = std::max(options.launch.rank, 0), ranks = std::max(options.launch.world_size, 1);
  const int threads = std::max(1, options.launch.threads);
  if (ranks > 2) fail(Code::kUsage, "the calibration runs as one rank or as two", "pass --world-size 2");
  const bool own_cores = pin_to_cores(rank, ranks, threads);
  std::unique_ptr<ControlPlane> store;
  if (ranks == 2) store = join_run(find_rendezvous(options, rank, ranks));
  if (store) store->barrier("ready", ranks);
  // Processes that share a core would measure each other.
  if (rank == 0 || own_cores) measure_operators(rank == 0);
  if (store) store->barrier("measured", ranks);
  measure_runtime(store.get(), rank, own_cores);
  // Rank 0 serves the store: it stays until the other has no question left.
  if (store && rank == 0) store->get("left");
  if (store && rank == 1) store->set("left", "1");
  if (store) store->leave("");
}

}  // namespace

int run_calibrate(int argc, char** argv) {
  return run_main(PlanTable{}, argc, argv, calibrate, [] { return std::string("in the calibration"); });
}

}  // namespace graphpipe::runtime
