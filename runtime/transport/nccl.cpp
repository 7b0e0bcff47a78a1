// NCCL between GPUs. Activations, gradients and the chunks of all-reduces travel here, from device memory to device
// memory; all else (losses, norms, names) is small and uses a separate host transport. All-reduces are the runtime's
// own ring (collectives/ring_all_reduce.h), not NCCL's: its additions come in an order that the serial interpreter
// knows.
//
// Each channel has a communicator of two ranks and a stream of its own: a send kernel that waits for its receiver
// blocks no other channel. Communicators are made in the order of the channels' keys, which is one order for all ranks.
// Nothing here is LibTorch's, so that the file can be exercised over a fake of CUDA and NCCL.
// A message is one group of two operations, header and payload, so that both ends group alike.

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "runtime/error.h"
#include "runtime/transport/transports.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

constexpr int kBlocksPerKernel = 2;  // few, so that waiting kernels leave the GPU to the compute

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(Code::kPeerFailed, text("NCCL: ", what, ": ", ncclGetErrorString(result)),
       "look at the other ranks' messages, or run with --transport shm");
}
void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  fail(Code::kEnvironment, text("CUDA: ", what, ": ", cudaGetErrorString(result)), "check the GPU and its driver");
}

// The calls of a non-blocking communicator return early; nothing may follow before they have completed.
void settle(ncclComm_t comm, const char* what) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    check(ncclCommGetAsyncError(comm, &state), what);
    check(state, what);
    if (state == ncclInProgress) std::this_thread::yield();
  }
}

std::string hex_of(const ncclUniqueId& id) {
  std::string out;
  for (char c : id.internal) {
    out += "0123456789abcdef"[(static_cast<unsigned char>(c) >> 4) & 15];
    out += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return out;
}
ncclUniqueId id_of(const std::string& hex) {
  ncclUniqueId id{};
  if (hex.size() != 2 * sizeof id.internal) fail(Code::kPeerFailed, "a malformed NCCL id", "start all ranks again");
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
  return id;
}

// One posted message: its header's places and the event that says that it is through. Made once and used again, since
// freeing memory of the device waits for all that it computes.
struct Flight {
  Message* message = nullptr;
  MessageHeader* host_header = nullptr;  // pinned
  void* device_header = nullptr;
  cudaEvent_t finished = nullptr;
};

class NcclWire {
 public:
  NcclWire(const ChannelSpec& spec, const TransportSetup& setup)
      : is_send_(spec.from_rank == setup.rank), compute_stream_(static_cast<cudaStream_t>(setup.compute_stream)) {
    Store& store = *setup.store;
    peer_ = is_send_ ? spec.to_rank : spec.from_rank;
    const std::string key = text("nccl/", static_cast<int>(spec.key.kind), "/", spec.key.index, "/", spec.key.from, "/",
                                 spec.key.to);
    ncclUniqueId id{};
    if (is_send_) {
      check(ncclGetUniqueId(&id), "unique id");
      store.set(key, hex_of(id));
    } else {
      id = id_of(store.get(key));
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = kBlocksPerKernel;
    check(ncclCommInitRankConfig(&comm_, 2, id, is_send_ ? 0 : 1, &config), "communicator");
    settle(comm_, "communicator");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check(cudaEventCreateWithFlags(&compute_, cudaEventDisableTiming), "event");
  }
  // The process ends with its communicators: aborting them would wait for kernels of peers that are gone.
  ~NcclWire() = default;

  int32_t peer() const { return peer_; }
  bool idle() const { return flights_.empty(); }

  void post(Message& message) {
    Flight flight = take_flight();
    flight.message = &message;
    if (is_send_) std::memcpy(flight.host_header, &message.header, sizeof(MessageHeader));
    launch(flight);
    flights_.push_back(flight);
  }

  bool progress() {
    bool moved = false;
    while (!flights_.empty()) {
      const cudaError_t state = cudaEventQuery(flights_.front().finished);
      if (state == cudaErrorNotReady) break;
      check(state, "message");
      Flight flight = flights_.front();
      flights_.pop_front();
      if (!is_send_) check_received(*flight.message, *flight.host_header);
      flight.message->done = true;
      idle_flights_.push_back(flight);
      moved = true;
    }
    return moved;
  }

  /// An asynchronous NCCL error, or nothing.
  std::optional<std::string> failure() const {
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return "cannot be asked";
    if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
    return std::string("failed: ") + ncclGetErrorString(state);
  }

 private:
  void launch(Flight& flight) {
    // The payload is written, or its memory was last used, by the compute stream.
    check(cudaEventRecord(compute_, compute_stream_), "event");
    check(cudaStreamWaitEvent(stream_, compute_, 0), "event");
    const auto bytes = static_cast<size_t>(flight.message->header.bytes);
    if (is_send_)
      check(cudaMemcpyAsync(flight.device_header, flight.host_header, sizeof(MessageHeader), cudaMemcpyHostToDevice,
                            stream_), "header");
    check(ncclGroupStart(), "group");
    if (is_send_) {
      check(ncclSend(flight.device_header, sizeof(MessageHeader), ncclUint8, 1, comm_, stream_), "send");
      if (bytes > 0) check(ncclSend(flight.message->data, bytes, ncclUint8, 1, comm_, stream_), "send");
    } else {
      check(ncclRecv(flight.device_header, sizeof(MessageHeader), ncclUint8, 0, comm_, stream_), "receive");
      if (bytes > 0) check(ncclRecv(flight.message->data, bytes, ncclUint8, 0, comm_, stream_), "receive");
    }
    check(ncclGroupEnd(), "group");
    settle(comm_, "message");
    if (!is_send_)
      check(cudaMemcpyAsync(flight.host_header, flight.device_header, sizeof(MessageHeader), cudaMemcpyDeviceToHost,
                            stream_), "header");
    check(cudaEventRecord(flight.finished, stream_), "event");
  }

  Flight take_flight() {
    Flight flight;
    if (!idle_flights_.empty()) {
      flight = idle_flights_.back();
      idle_flights_.pop_back();
      return flight;
    }
    check(cudaMallocHost(reinterpret_cast<void**>(&flight.host_header), sizeof(MessageHeader)), "pinned memory");
    check(cudaMalloc(&flight.device_header, sizeof(MessageHeader)), "device memory");
    check(cudaEventCreateWithFlags(&flight.finished, cudaEventDisableTiming), "event");
    return flight;
  }

  bool is_send_;
  cudaStream_t compute_stream_;
  int32_t peer_ = -1;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t compute_ = nullptr;
  std::deque<Flight> flights_;        // in flight, in the order in which they were posted
  std::vector<Flight> idle_flights_;  // for reuse; as many as were ever in flight at once
};

class Nccl final : public Transport {
 public:
  explicit Nccl(const TransportSetup& setup) {
    TransportSetup host = setup;
    host.channels.clear();
    // Keys are in ascending order on all ranks (plan_channels), so that communicators meet.
    for (const ChannelSpec& spec : setup.channels) {
      const bool on_device = carries_tensors(spec.key.kind);
      places_.push_back({on_device, on_device ? wires_.size() : host.channels.size()});
      if (on_device) wires_.push_back(std::make_unique<NcclWire>(spec, setup));
      else host.channels.push_back(spec);
    }
    host_ = open_auto(host);
  }

  const char* name() const override { return "nccl"; }
  bool moves_alone(size_t) const override { return true; }
  bool takes_device_memory(ChannelKind kind) const override { return carries_tensors(kind); }
  void post_send(size_t channel, Message& message) override {
    const auto [on_device, index] = places_[channel];
    if (on_device) wires_[index]->post(message);
    else host_->post_send(index, message);
  }
  void post_receive(size_t channel, Message& message) override {
    const auto [on_device, index] = places_[channel];
    if (on_device) wires_[index]->post(message);
    else host_->post_receive(index, message);
  }
  void forget(const Message& message) override { host_->forget(message); }
  bool progress() override {
    bool moved = host_->progress();
    for (const std::unique_ptr<NcclWire>& wire : wires_) moved |= wire->progress();
    return moved;
  }
  void wait(std::chrono::microseconds longest) override {
    // NCCL wakes nobody: poll again soon while a message is in flight.
    constexpr std::chrono::microseconds kLookAgain{20};
    bool idle = true;
    for (const std::unique_ptr<NcclWire>& wire : wires_) idle &= wire->idle();
    host_->wait(idle ? longest : std::min(longest, kLookAgain));
  }
  void publish(const Activity& activity) override { host_->publish(activity); }
  std::optional<Activity> activity_of(int32_t rank) const override { return host_->activity_of(rank); }
  std::optional<int32_t> silent_relay(double seconds) const override { return host_->silent_relay(seconds); }
  std::optional<PeerFailure> find_failure() override {
    if (std::optional<PeerFailure> failure = host_->find_failure()) return failure;
    for (const std::unique_ptr<NcclWire>& wire : wires_)
      if (std::optional<std::string> what = wire->failure())
        return PeerFailure{.rank = wire->peer(), .what = *what, .last = std::nullopt};
    return std::nullopt;
  }
  void leave(const std::string& problem) override { host_->leave(problem); }

 private:
  struct Place {
    bool on_device = false;
    size_t index = 0;
  };
  std::vector<Place> places_;
  std::vector<std::unique_ptr<NcclWire>> wires_;
  std::unique_ptr<Transport> host_;
};

}  // namespace

std::unique_ptr<Transport> open_nccl(const TransportSetup& setup) { return std::make_unique<Nccl>(setup); }

}  // namespace graphpipe::runtime
