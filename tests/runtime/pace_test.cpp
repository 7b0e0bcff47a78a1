// Paced messages: laws of the links' clock, and of the transport that waits for it.

#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "runtime/error.h"
#include "runtime/pace/paced_program.h"
#include "runtime/pace/paced_transport.h"
#include "runtime/pace/repeated_memory.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

TEST_CASE("messages of a link follow each other, and those of two links do not wait for each other") {
  LinkClock clock(nullptr, 0, 1, 2);
  CHECK(clock.occupy(0, 100, 50) == 150);
  CHECK(clock.occupy(0, 120, 50) == 200);  // waits for the first
  CHECK(clock.occupy(1, 120, 50) == 170);
  CHECK(clock.occupy(0, 500, 50) == 550);  // the link was idle
}

TEST_CASE("repeated memory holds any size in a few pages, and zeros stay zeros") {
  const DimRow dims[] = {{.factor = int64_t{3} << 28, .power = 0}};
  const TensorRow row{.type = ElementType::kFloat32, .dims = dims};
  const RepeatedMemory memory(bytes_of(row, 1));
  at::Tensor whole = memory.tensor(row, 1);
  CHECK(whole.numel() == int64_t{3} << 28);
  whole.narrow(0, int64_t{1} << 28, 1 << 20).add_(at::zeros({1 << 20}));
  CHECK(whole.narrow(0, (int64_t{3} << 28) - 4096, 4096).eq(0).all().item<bool>());
}

// Two ends of a channel of one process, which moves bytes at once.
TEST_CASE("a paced message is done when its link has brought it, not when its bytes are there") {
  constexpr double kLatency = 0.05;
  const ChannelKey key{ChannelKind::kForward, 0, 0, 0};
  TransportSetup setup;
  setup.channels = {{.key = key, .largest_bytes = 8}};
  LinkClock clock(nullptr, 0, 1, 1);
  const std::unique_ptr<Transport> transport =
      pace_transport(open_loopback(setup), {{.link = 0, .latency = kLatency}}, clock);
  std::byte sent[8] = {std::byte{7}}, received[8] = {};
  Message send{.header = {.key = key, .bytes = 8}, .data = sent};
  Message receive{.header = {.key = key, .bytes = 8}, .data = received};
  const auto start = std::chrono::steady_clock::now();
  transport->post_send(0, send);
  transport->post_receive(0, receive);
  const auto is_early = [&] {
    return std::chrono::steady_clock::now() - start < std::chrono::duration<double>(kLatency);
  };
  do {
    transport->progress();
    const bool done = receive.done;
    if (is_early()) CHECK(!done);
  } while (!receive.done);
  CHECK(!is_early());
  CHECK(received[0] == std::byte{7});
}

TEST_CASE("a plan without a way where tensors travel is refused, and control messages need none") {
  wire::PacePlan plan{.digest = std::string(64, 'a'), .batch = 2, .links = 1};
  plan.stages = {{.gradient_bytes = 8}, {}};
  plan.edges = {{.from = 0, .to = 1, .bytes = 4, .gradients = 1}};
  plan.places = {{0, 0, 0}, {1, 0, 1}};
  plan.ways = {{.from = 0, .to = 1, .link = 0, .latency = 2, .byte = 3}};
  plan.programs.resize(2);
  const PacedProgram program(plan, 0);
  const ChannelSpec forward{.key = {ChannelKind::kForward, 0, 0, 0}, .from_rank = 0, .to_rank = 1};
  const ChannelSpec backward{.key = {ChannelKind::kBackward, 0, 0, 0}, .from_rank = 1, .to_rank = 0};
  const ChannelSpec gather{.key = {ChannelKind::kGather, 0, 1, 0}, .from_rank = 1, .to_rank = 0};
  const std::vector<ChannelPace> paces = program.paces({forward, gather});
  CHECK(paces[0].link == 0);
  CHECK(paces[0].latency == 2);
  CHECK(paces[1].link == -1);
  CHECK_THROWS_WITH_AS(program.paces({backward}), doctest::Contains("no way from rank 1 to rank 0"), RunError);
}

}  // namespace
}  // namespace graphpipe::runtime
