#include "runtime/profiling/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <thread>

#include "runtime/error.h"
#include "runtime/executor/link_programs.h"
#include "runtime/launch/pin_to_cores.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/run_main.h"
#include "runtime/profiling/measure.h"

namespace graphpipe::runtime {
namespace {

// Time limit of a meeting, at which a rank may wait for all that the other measures.
constexpr double kMeetingSeconds = 24 * 3600;

void print_operators(const ModelMeasurement& model, std::span<const MarkRow> marks) {
  for (const MarkSeconds& at : model.marks) {
    std::map<int32_t, std::array<double, 3>> of_node;
    for (size_t i = 0; i < marks.size(); ++i)
      of_node.try_emplace(marks[i].node, std::array<double, 3>{-1, -1, -1})
          .first->second[static_cast<size_t>(marks[i].phase)] = at.seconds[i];
    for (const auto& [node, seconds] : of_node) {
      std::printf("op %d %lld", node, static_cast<long long>(at.samples));
      for (double of_phase : seconds) of_phase < 0 ? std::printf(" -") : std::printf(" %.6e", of_phase);
      std::printf("\n");
    }
  }
}

void measure(const DeviceProgram& program, std::span<const MarkRow> marks, const wire::RunOptions& options) {
  const int32_t rank = std::max(options.launch.rank, 0), ranks = std::max(options.launch.world_size, 1);
  const int threads = options.launch.threads > 0 ? options.launch.threads : std::max(1, program.plan->threads);
  if (ranks > 2) fail(Code::kUsage, "the profiling program runs as one rank or as two", "pass --world-size 2");
  pin_to_cores(rank, ranks, threads);
  const bool may_spin = static_cast<unsigned>(threads * ranks) <= std::thread::hardware_concurrency();
  std::unique_ptr<ControlPlane> store;
  if (ranks == 2) {
    Rendezvous rendezvous = find_rendezvous(options, rank, ranks);
    rendezvous.get_seconds = kMeetingSeconds;
    store = join_run(rendezvous);
  }
  const std::unique_ptr<Device> device = open_device(options.launch.device, rank);
  int meetings = 0;
  const auto meet = [&] {
    if (store && !options.launch.alone) store->barrier(text("meeting", meetings++), ranks);
  };
  ModelMeasurement model;
  if (rank == 0 || !options.launch.alone) model = measure_model(program, marks, *device, options, meet);
  if (rank == 0) print_operators(model, marks);
  if (store) store->barrier("measured", ranks);
  double addition = store ? 0 : measure_additions(*device);
  const double bare = rank == 0 ? measure_bare_item(*device) : 0;
  const MessageSeconds busy = rank == 0 ? measure_messages_of_one(*device, bare) : MessageSeconds{};
  if (store) {
    const MessageSeconds link = measure_link(*device, *store, rank, may_spin, bare, busy);
    addition = measure_additions_of_two(*device, *store, rank, may_spin, link, busy);
    if (rank == 0) std::printf("link %.6e %.6e\n", link.constant, link.per_byte);
    // Rank 0 serves the store: it stays until the other rank needs nothing more.
    if (rank == 0) store->get("left");
    else store->set("left", "1");
    store->leave("");
  }
  if (rank != 0) return;
  std::printf("runtime %.6e %.6e %.6e %.6e %.6e %.6e %.6e\n", model.step, model.action, busy.constant, busy.per_byte,
              model.update_tensor, model.update_byte, addition);
}

}  // namespace

int run_profile(const LinkedProgram& linked, std::span<const MarkRow> marks, int argc, char** argv) {
  const DeviceProgram program = link_programs({&linked, 1}).front();
  end_process(run_main(
      *program.plan, argc, argv, [&](const wire::RunOptions& options) { measure(program, marks, options); },
      [] { return std::string("in the profiling program"); }));
}

}  // namespace graphpipe::runtime
