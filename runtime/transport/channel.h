#pragma once
// The interface of all transports.
//
// A channel is unidirectional between two ranks and preserves order. Both ends post messages: a send with its header
// and bytes, a receive with the header that it expects and space for the bytes. The k-th send matches the k-th receive;
// their headers must agree in plan, channel, step, samples, part, type and shape, otherwise the run ends (RunError,
// kPeerFailed). Posting never blocks. Bytes move in progress(), which the one compute thread of a rank calls between
// actions and while it waits; a message must stay in place in memory until its `done` is set.

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program.h"
#include "support/diagnostic.h"
#include "wire/action.h"

namespace graphpipe::runtime {

enum class ChannelKind : uint8_t {
  kForward,   // index: edge; from, to: replicas
  kBackward,  // index: edge; from, to: replicas
  kReduce,    // index: stage; from, to: neighbours in the ring of its replicas; chunks of weight gradients
  kServer,    // index: stage; from, to: replicas, 0 the parameter server; gradients to it, weights from it
  kShare,     // index: weight group; from, to: rows of the placement; the sums of two of its stages
  kWeights,   // index: stage; from, to: replicas; parts of weights that one has updated for all
  kGather,    // index 0; a device's losses, norms and tensors to device 0
  kTotal,     // index 0; from device 0 to a device
  kSums,  // index: stage; from, to: replicas; what they exchange in the middle of a pass (runtime/replica_exchange.h)
};
/// Whether the channel carries tensors of stages: they are large, and live on the stages' device.
constexpr bool carries_tensors(ChannelKind kind) { return kind <= ChannelKind::kWeights; }
const char* channel_kind_name(ChannelKind kind);

struct ChannelKey {
  ChannelKind kind = ChannelKind::kForward;
  int32_t index = 0;
  int32_t from = 0;
  int32_t to = 0;
  auto operator<=>(const ChannelKey&) const = default;
};

/// What both ends know about a channel when it is opened.
struct ChannelSpec {
  ChannelKey key;
  int32_t from_rank = 0;
  int32_t to_rank = 0;
  /// The receiver's largest expected message; larger ones still pass, in pieces.
  int64_t largest_bytes = 0;
};

/// Precedes every message's bytes, as it lies in memory (all ranks run on the same kind of machine).
struct MessageHeader {
  static constexpr uint32_t kMagic = 0x47504d31;  // "GPM1"
  static constexpr int kMaxDims = 8;
  uint32_t magic = kMagic;
  uint32_t rank = 0;  // number of dims
  uint64_t plan = 0;  // first 16 hex digits of the plan's digest
  ChannelKey key;
  int32_t part = 0;  // which gradient tensor, or which parameter
  ElementType type = ElementType::kUInt8;
  int64_t step = 0;
  wire::SampleRange range;
  int64_t bytes = 0;
  int64_t dims[kMaxDims] = {};
  /// In a paced run: when the plan's link would have delivered it, in nanoseconds of the steady clock (runtime/pace).
  int64_t arrives = 0;
};

struct Message {
  MessageHeader header;
  std::byte* data = nullptr;
  /// Receives only: accepts any number of bytes; `data` is not used and the header's shape is not compared.
  std::vector<std::byte>* sink = nullptr;
  /// Receives of float32 into host memory only: what arrives is added to the existing contents.
  bool adds = false;
  bool done = false;
};

/// "its samples are [0,4) where [4,8) were expected"; empty if a received header is the expected one.
std::string difference(const MessageHeader& expected, const MessageHeader& received, bool any_size);
/// Ends the run if the headers differ.
void check_received(const Message& expected, const MessageHeader& received);

/// What a rank is doing, for the message that ends a run; other ranks see it if the transport shares it.
struct Activity {
  int32_t op = -1;  // wire::ActionOp, or -1 before and after the actions
  int32_t stage = -1;
  int32_t replica = 0;
  wire::SampleRange range;
  int64_t step = 0;
  /// The rank whose message it waits for, or -1 while it computes.
  int32_t waits_for = -1;
  /// Increases while it waits: a rank that waits without increasing it is stopped, not waiting.
  int64_t beats = 0;
};

/// A peer that has failed or ended.
struct PeerFailure {
  int32_t rank = -1;
  /// "died", "closed its connection", "ended with: ...".
  std::string what;
  std::optional<Activity> last;
  /// It ended with an error that it has reported itself.
  bool told = false;
  /// It ended with an error that all ranks encounter, such as the loss of a feeder: rank 0 reports it.
  bool left_to_rank_zero = false;
};

/// Prefix of the text with which a rank leaves after such an error.
inline constexpr std::string_view kLeftToRankZero = "all ranks: ";
/// The failure of a rank that left with this text, in words that follow "rank 2".
PeerFailure failure_told_by(int32_t rank, std::string_view problem);
/// The severity of the failure on another rank: a note if some other rank reports it.
Severity severity_for(const PeerFailure& failure, int32_t own_rank);

struct Doorbell;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  /// Whether messages of this kind are in the GPU's memory; all others are in the host's.
  virtual bool takes_device_memory(ChannelKind) const { return false; }
  /// Whether the channel's messages move while the rank computes, and not by its cores alone: over a network, or from
  /// GPU to GPU.
  virtual bool moves_alone(size_t) const { return false; }
  /// `channel` indexes the specs that the transport was opened with.
  virtual void post_send(size_t channel, Message& message) = 0;
  virtual void post_receive(size_t channel, Message& message) = 0;
  /// The message is destroyed before it is done, since the run has failed: the transport no longer touches it, nor
  /// those queued after it on its channel. For transports that move messages on a thread of their own.
  virtual void forget(const Message&) {}
  /// Moves what can be moved now; returns whether anything moved.
  virtual bool progress() = 0;
  /// Sleeps until something may have moved, or until the time has passed.
  virtual void wait(std::chrono::microseconds longest) = 0;
  /// What this rank sleeps on in wait(), if another thread may wake it.
  virtual Doorbell* doorbell() { return nullptr; }
  virtual void publish(const Activity&) {}
  /// What another rank published last, if it is known.
  virtual std::optional<Activity> activity_of(int32_t) const { return std::nullopt; }
  /// The rank that relays what the others do, if it has been silent for this long: then nothing is known about them.
  virtual std::optional<int32_t> silent_relay(double) const { return std::nullopt; }
  /// The first peer found dead or failed.
  virtual std::optional<PeerFailure> find_failure() { return std::nullopt; }
  /// Tells the others that this rank exits successfully, or with `problem`.
  virtual void leave(const std::string& problem) { static_cast<void>(problem); }
};

/// The key-value store used for rendezvous.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits for the key; throws RunError (kPeerFailed) if a rank fails or is lost meanwhile, or after the time-out.
  virtual std::string get(const std::string& key) = 0;
  /// Returns once `count` ranks have called it with this name.
  virtual void barrier(const std::string& name, int32_t count) = 0;
};

class ControlPlane;

/// Copies bytes within a GPU's memory, in the order of the work queued there.
using DeviceCopy = std::function<void(void* to, const void* from, size_t bytes)>;

/// What a transport is opened with. `channels` are those with one end on this rank and the other end on another rank.
struct TransportSetup {
  int32_t rank = 0;
  int32_t world_size = 1;
  Store* store = nullptr;
  /// For network transports; others only need the store.
  ControlPlane* control = nullptr;
  std::vector<ChannelSpec> channels;
  /// Identifies this rank's host: ranks with equal texts share memory. Empty: determined automatically.
  std::string host;
  /// For shared memory: the participating ranks, in ascending order. Empty: all.
  std::vector<int32_t> sharing;
  /// For transports with a thread of their own: also rung when a message has passed. Must outlive the transport.
  Doorbell* doorbell = nullptr;
  /// Whether each rank has a core of its own, so that a short spin pays.
  bool may_spin = false;
  /// For network transports: loopback if all ranks run on one host, otherwise the address of rank 0.
  std::string address = "127.0.0.1";
  /// For network transports: time limit for connecting, once all ranks listen.
  double open_seconds = 60;
  /// Device::compute_stream(), for transports that take device memory.
  void* compute_stream = nullptr;
  /// Device::copies(), for loopback: with it, it moves tensors of stages in the GPU's memory.
  DeviceCopy device_copy;
};

/// Channels of this process to itself.
std::unique_ptr<Transport> open_loopback(const TransportSetup& setup);

/// One entry per transport between ranks.
struct TransportEntry {
  const char* name;
  const char* help;
  /// Null if this build does not include it.
  std::unique_ptr<Transport> (*open)(const TransportSetup&);
};
std::span<const TransportEntry> transports();

}  // namespace graphpipe::runtime
