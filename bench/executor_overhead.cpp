// What a step costs beside its kernels: an action without operators, a message within a rank, and round trips between
// two ranks over each transport.
//
//     build/release/bench/executor_overhead
//
// The two ranks are processes, each on a core of its own; give them two free cores.

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "runtime/launch/rendezvous.h"
#include "runtime/launch/sockets.h"
#include "runtime/profiling/measure.h"
#include "runtime/transport/transports.h"
#include "support/median.h"
#include "wire/secret.h"

using namespace graphpipe::runtime;

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kUp = 0, kDown = 1;
constexpr int64_t kLargest = 1 << 20;

const std::vector<ChannelSpec> kChannels = {{{ChannelKind::kForward, 0, 0, 0}, 0, 1, kLargest},
                                            {{ChannelKind::kBackward, 0, 0, 0}, 1, 0, kLargest}};

void pin(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(rank) % std::thread::hardware_concurrency(), &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

Message message(size_t channel, std::vector<std::byte>& bytes) {
  Message out;
  out.header.key = kChannels[channel].key;
  out.header.bytes = static_cast<int64_t>(bytes.size());
  out.header.rank = 1;
  out.header.dims[0] = out.header.bytes;
  out.data = bytes.data();
  return out;
}

void wait_for(Transport& transport, const Message& message) {
  while (!message.done)
    if (!transport.progress() && !message.done) transport.wait(std::chrono::milliseconds(100));
}

void send(Transport& transport, size_t channel, std::vector<std::byte>& bytes) {
  Message out = message(channel, bytes);
  transport.post_send(channel, out);
  wait_for(transport, out);
}

void receive(Transport& transport, size_t channel, std::vector<std::byte>& bytes) {
  Message in = message(channel, bytes);
  transport.post_receive(channel, in);
  wait_for(transport, in);
}

void round_trips(Transport& transport, const char* name, int rank, size_t size, int rounds) {
  std::vector<std::byte> bytes(size);
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const Clock::time_point start = Clock::now();
    if (rank == 0) send(transport, kUp, bytes);
    receive(transport, rank == 0 ? kDown : kUp, bytes);
    if (rank == 1) send(transport, kDown, bytes);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  if (rank == 0)
    std::printf("%-6s round trip of %4zu KB: %8.1f us\n", name, size >> 10, 1e6 * graphpipe::median(seconds));
}

int run_rank(const TransportEntry& entry, int rank, int connection) {
  pin(rank);
  const auto store = join_run({.rank = rank, .world_size = 2, .inherited = {connection}});
  const auto transport = entry.open({.rank = rank,
                                     .world_size = 2,
                                     .store = store.get(),
                                     .control = store.get(),
                                     .channels = kChannels,
                                     .may_spin = std::thread::hardware_concurrency() >= 2});
  round_trips(*transport, entry.name, rank, 4 << 10, 2000);
  round_trips(*transport, entry.name, rank, 1 << 20, 400);
  transport->leave("");
  store->barrier("end", 2);
  // Rank 0 serves the store: it ends last.
  if (rank == 1) store->set("left", "1");
  else store->get("left");
  store->leave("");
  return 0;
}

bool measure_transport(const TransportEntry& entry) {
  auto ends = connected_pair();
  // Each process that joins takes it out of its environment.
  setenv(graphpipe::wire::kSecretVariable, "nobody else can reach the inherited connection", 1);
  std::fflush(nullptr);
  const pid_t child = fork();
  // Both ends are open in both processes: neither finds that the other has ended, and need not.
  if (child == 0) std::_Exit(run_rank(entry, 1, ends.second.release()));
  run_rank(entry, 0, ends.first.release());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main() {
  pin(0);
  const auto device = open_device("cpu", 0);
  const double bare = measure_bare_item(*device);
  const MessageSeconds busy = measure_messages_of_one(*device, bare);
  constexpr int kActionsOfItem = 4;  // two forwards, two backwards
  std::printf("action without operators: %.2f us\n", 1e6 * bare / kActionsOfItem);
  std::printf("a send or a receive, for the compute of its rank: %.2f us + %.2f us a megabyte\n", 1e6 * busy.constant,
              1e6 * busy.per_byte * kLargest);
  bool good = true;
  for (const TransportEntry& entry : transports()) {
    const std::string name = entry.name;
    if (name == "shm" || name == "tcp") good &= measure_transport(entry);
  }
  return good ? 0 : 1;
}
