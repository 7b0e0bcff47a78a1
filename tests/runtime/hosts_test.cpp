// Ranks on several hosts: shared memory within a host, TCP between them. The hosts are told, the ranks are processes
// here.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/transport/transports.h"
#include "tests/runtime/transport_ranks.h"

using namespace graphpipe::runtime;

namespace hosts_test {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr int32_t kRanks = 4;  // 0 and 1 on the first host, 2 and 3 on the second

int sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    count += std::filesystem::read_symlink(entry.path(), error).string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

int sockets_of_channels = 0;  // each rank is a process

std::unique_ptr<Transport> open_on_two_hosts(const TransportSetup& setup) {
  TransportSetup own = setup;
  own.host = setup.rank < 2 ? "the first host" : "the second host";
  const int before = sockets();
  std::unique_ptr<Transport> transport = open_auto(own);
  sockets_of_channels = sockets() - before;
  return transport;
}

constexpr TransportEntry kTwoHosts{"auto", "", &open_on_two_hosts};

// A ring in both directions: channel 2*i goes from rank i to the next one, 2*i + 1 back.
ChannelSpec spec(int32_t index) {
  const int32_t lower = index / 2, upper = (lower + 1) % kRanks;
  const bool up = index % 2 == 0;
  return {{ChannelKind::kForward, index, 0, 0}, up ? lower : upper, up ? upper : lower, 1 << 16};
}

std::vector<ChannelSpec> channels_of(int32_t rank) {
  std::vector<ChannelSpec> specs;
  for (int32_t index = 0; index < 2 * kRanks; ++index)
    if (spec(index).from_rank == rank || spec(index).to_rank == rank) specs.push_back(spec(index));
  return specs;
}

Message message(const ChannelSpec& spec, Bytes& bytes) {
  Message out;
  out.header.key = spec.key;
  out.header.bytes = out.header.dims[0] = static_cast<int64_t>(bytes.size());
  out.header.rank = 1;
  out.data = bytes.data();
  return out;
}

// Whether it arrived before a peer failed.
bool wait_for(Transport& transport, const Message& message) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (!message.done && Clock::now() < end) {
    if (transport.progress()) continue;
    if (!message.done && transport.find_failure()) return false;
    transport.wait(std::chrono::milliseconds(100));
  }
  return message.done;
}

Bytes pattern(const ChannelSpec& spec, size_t size) { return Bytes(size, static_cast<std::byte>(1 + spec.key.index)); }

// Sends on all channels at once, large and small, and compares what comes.
int exchange(int32_t rank, Transport& transport) {
  const std::vector<ChannelSpec> specs = channels_of(rank);
  for (const size_t size : {size_t{0}, size_t{100}, size_t{3} << 20}) {
    std::vector<Bytes> bytes;
    std::vector<Message> messages;
    for (const ChannelSpec& spec : specs) bytes.push_back(spec.from_rank == rank ? pattern(spec, size) : Bytes(size));
    for (size_t i = 0; i < specs.size(); ++i) messages.push_back(message(specs[i], bytes[i]));
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i].from_rank == rank) transport.post_send(i, messages[i]);
      else transport.post_receive(i, messages[i]);
    for (size_t i = 0; i < specs.size(); ++i)
      if (!wait_for(transport, messages[i]) || bytes[i] != pattern(specs[i], size)) return 1;
  }
  return 0;
}

size_t place_of(const std::vector<ChannelSpec>& specs, int32_t index) {
  size_t place = 0;
  while (specs[place].key.index != index) ++place;
  return place;
}

// Ranks 1 and 2, on different hosts, answer each other; the other two are idle.
int answer_each_other(int32_t rank, Transport& transport, int rounds) {
  if (rank == 0 || rank == 3) return 0;
  const std::vector<ChannelSpec> specs = channels_of(rank);
  for (int turn = 0; turn < 2 * rounds; ++turn) {
    const int32_t index = turn % 2 == 0 ? 2 : 3;  // up from 1 to 2, and back
    const size_t place = place_of(specs, index);
    Bytes bytes(64);
    Message passing = message(specs[place], bytes);
    if (specs[place].from_rank == rank) transport.post_send(place, passing);
    else transport.post_receive(place, passing);
    if (!wait_for(transport, passing)) return 1;
  }
  return 0;
}

}  // namespace

TEST_CASE("ranks of one host share memory where others are on another host: sockets go between hosts only") {
  const auto reports = test::run_on_ranks(
      kTwoHosts, kRanks, channels_of, [](int32_t rank, std::unique_ptr<Transport> transport, test::RankReport& report) {
        report.bytes[0] = sockets_of_channels;
        std::snprintf(report.error, sizeof report.error, "%s", transport->name());
        const int code = exchange(rank, *transport);
        transport->leave("");
        return code;
      });
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const test::RankReport& report = reports[rank];
    CHECK(report.exit_code == 0);
    // One neighbour of each is on the other host: a connection there and one back. Rank 0 may be accepting the others
    // into the run meanwhile.
    if (rank > 0) CHECK(report.bytes[0] == 2);
    CHECK(std::string(report.error) == "shm and tcp");
  }
}

TEST_CASE("a message from another host wakes a rank that sleeps on shared memory") {
  constexpr int kRounds = 250;
  const auto reports = test::run_on_ranks(
      kTwoHosts, kRanks, channels_of, [](int32_t rank, std::unique_ptr<Transport> transport, test::RankReport& report) {
        const auto begin = Clock::now();
        const int code = answer_each_other(rank, *transport, kRounds);
        report.bytes[0] = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
        transport->leave("");
        return code;
      });
  for (const test::RankReport& report : reports) CHECK(report.exit_code == 0);
  // A rank that nobody wakes looks again after 20 ms: 10 s for all rounds.
  CHECK(reports[1].bytes[0] < 5000);
}

TEST_CASE("the death of a rank is found on its own host and on the other one") {
  const auto reports = test::run_on_ranks(
      kTwoHosts, kRanks, channels_of, [](int32_t rank, std::unique_ptr<Transport> transport, test::RankReport& report) {
        if (rank == 3) std::_Exit(42);
        const auto end = Clock::now() + std::chrono::seconds(20);
        while (Clock::now() < end) {
          transport->progress();
          if (const auto failure = transport->find_failure()) {
            report.bytes[0] = failure->rank;
            std::_Exit(7);
          }
          transport->wait(std::chrono::milliseconds(10));
        }
        return 1;
      });
  CHECK(reports[3].exit_code == 42);
  // A rank that is still opening its transport then finds it there. Rank 0 tells rank 1 of it, or is gone itself.
  for (const size_t rank : {0, 1, 2}) {
    CAPTURE(rank);
    CAPTURE(reports[rank].error);
    if (reports[rank].exit_code != test::kRankFoundFailure) CHECK(reports[rank].exit_code == 7);
    if (reports[rank].exit_code == 7) CHECK(reports[rank].bytes[0] >= (rank == 2 ? 3 : rank == 0 ? 2 : 0));
  }
}

}  // namespace hosts_test
