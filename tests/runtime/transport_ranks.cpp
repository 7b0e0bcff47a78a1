#include "tests/runtime/transport_ranks.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/error.h"
#include "runtime/launch/control.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/sockets.h"
#include "wire/secret.h"

// Of ATen/Parallel.h, which brings a CHECK of its own into the tests that are compiled together with this file.
namespace at {
void set_num_threads(int);
}

namespace graphpipe::runtime::test {
namespace {

using Body = std::function<int(int32_t rank, std::unique_ptr<Transport>, RankReport&)>;

int run_rank_body(const TransportEntry& entry, TransportSetup setup, int32_t port, int listen_fd, const Body& body,
                  RankReport& report) {
  std::unique_ptr<ControlPlane> control;
  try {
    control = join_run({.rank = setup.rank, .world_size = setup.world_size, .port = port, .listen_fd = listen_fd});
    setup.store = control.get();
    setup.control = control.get();
    const int code = body(setup.rank, entry.open(setup), report);
    control->barrier("end", setup.world_size);
    // Rank 0 serves the store: it ends last.
    if (setup.rank > 0) control->set("bye " + std::to_string(setup.rank), "1");
    for (int32_t rank = 1; setup.rank == 0 && rank < setup.world_size; ++rank)
      control->get("bye " + std::to_string(rank));
    control->leave("");
    return code;
  } catch (const RunError& error) {
    std::strncpy(report.error, error.what(), sizeof report.error - 1);
    if (control) control->leave(error.what());
    return error.diagnostic().code == Code::kPeerFailed ? kRankFoundFailure : kRankFailed;
  }
}

}  // namespace

std::vector<TransportEntry> testable_transports() {
  const bool over_fake = dlsym(RTLD_DEFAULT, "graphpipe_fake_nccl") != nullptr;
  std::vector<TransportEntry> out;
  for (const TransportEntry& entry : transports())
    if ((std::string(entry.name) == "nccl") == over_fake) out.push_back(entry);
  return out;
}

std::vector<RankReport> run_on_ranks(const TransportEntry& entry, int32_t ranks,
                                     const std::function<std::vector<ChannelSpec>(int32_t)>& channels,
                                     const Body& body) {
  const size_t bytes = sizeof(RankReport) * static_cast<size_t>(ranks);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* reports = new (memory) RankReport[static_cast<size_t>(ranks)];
  int32_t port = 0;
  Descriptor listener = listen_at("127.0.0.1", port);
  setenv(wire::kSecretVariable, "the secret of all ranks of these tests", 1);
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    pids.push_back(fork());
    if (pids.back() != 0) continue;
    const TransportSetup setup{
        .rank = rank, .world_size = ranks, .channels = channels(rank), .may_spin = false, .address = "127.0.0.1"};
    at::set_num_threads(1);
    const int code = run_rank_body(entry, setup, port, rank == 0 ? listener.get() : -1, body, reports[rank]);
    std::fflush(nullptr);
    std::_Exit(code);
  }
  listener = {};
  std::vector<RankReport> out;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    int status = 0;
    waitpid(pids[static_cast<size_t>(rank)], &status, 0);
    reports[rank].exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out.push_back(reports[rank]);
  }
  munmap(memory, bytes);
  return out;
}

}  // namespace graphpipe::runtime::test
