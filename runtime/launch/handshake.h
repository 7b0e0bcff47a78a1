#pragma once
// How the two ends of a new connection prove to each other that they know the run's secret, without revealing it.
//
//   caller:   Hello       what it wants, a random number, and a MAC of them under the secret
//   answerer: Reply       a random number of its own, and a MAC of both
//   caller:   Proof       another MAC of both
//
// Messages have fixed sizes and the answerer never waits for one. An unauthenticated peer is disconnected after its
// first message; until then it costs a descriptor and about two hundred bytes. (The first MAC keeps unauthenticated
// peers from taking the slots of real callers; it proves nothing, since anyone who can read the network may have copied
// it. The last one does.) What follows is protected by a key that only these two ends know.

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/launch/secret.h"
#include "support/descriptor.h"

namespace graphpipe::runtime {

/// Distinguishes runs that share a secret.
using RunId = std::array<std::byte, 16>;

/// Sent as it lies in memory: all ranks run on the same kind of machine.
struct Hello {
  static constexpr uint32_t kMagic = 0x47504831;  // "GPH1"
  enum class Purpose : uint32_t { kControl = 1, kChannel = 2 };
  uint32_t magic = kMagic;
  Purpose purpose = Purpose::kControl;
  uint32_t rank = 0;     // the caller's
  uint32_t channel = 0;  // kChannel: which of the answerer's incoming channels
  RunId run{};           // kChannel: the run's; else zeros, which the caller cannot know yet
  std::array<std::byte, 32> random{};
  Sha256Digest mac{};  // over everything above
};
static_assert(sizeof(Hello) == 96);
/// Fills in the MAC.
void sign(Hello& hello, const Key& key);

struct Reply {
  std::array<std::byte, 32> random{};
  Sha256Digest mac{};
};

/// A connection whose other end knows the secret.
struct Introduced {
  Descriptor socket;
  Hello hello;
  Key session;
};

/// The answerer's side of one connection.
class Answerer {
 public:
  enum class State { kWaits, kDone, kRefused };
  using Clock = std::chrono::steady_clock;

  explicit Answerer(Descriptor socket);
  /// Proceeds as far as it can without waiting.
  State step(const Key& key, Hello::Purpose purpose, const RunId& run);
  /// The connection, once it is kDone.
  Introduced take(const Key& key);
  int descriptor() const { return socket_.get(); }
  Clock::time_point since() const { return since_; }
  /// Whether the caller's first message has arrived and its MAC was valid.
  bool has_replied() const { return replied_; }

 private:
  /// Whether the next message is complete; sets closed_ if it can no longer be completed.
  bool read_to(size_t end);

  Descriptor socket_;
  Clock::time_point since_ = Clock::now();
  std::array<std::byte, sizeof(Hello) + sizeof(Sha256Digest)> received_{};
  size_t count_ = 0;
  bool closed_ = false, replied_ = false;
  Reply reply_;
};

/// Accepts and authenticates connections on a listening socket. A connection may take kPatience. Of those that have
/// sent nothing yet kMaxSilent are kept, of those that owe their proof (an attacker may replay a rank's first message)
/// kMaxReplied; the oldest are dropped: a peer that knows the secret connects again. If the process has run out of
/// descriptors, accepting pauses for kPause.
class Acceptor {
 public:
  static constexpr size_t kMaxSilent = 64, kMaxReplied = 256;
  static constexpr std::chrono::seconds kPatience{5};
  static constexpr std::chrono::milliseconds kPause{100};

  Acceptor(Descriptor listener, const Key& key, Hello::Purpose purpose, const RunId& run);
  /// Adds what to poll for.
  void add_to(std::vector<pollfd>& polled) const;
  /// The connections whose peers have authenticated themselves meanwhile.
  std::vector<Introduced> step();

 private:
  void accept_some(std::vector<Introduced>& introduced);
  void keep(Answerer caller);
  /// Whether the handshake is still in progress.
  bool answer(Answerer& caller, std::vector<Introduced>& introduced);

  Descriptor listener_;
  Key key_;
  Hello::Purpose purpose_;
  RunId run_;
  std::vector<Answerer> silent_, replied_;  // oldest first
  Answerer::Clock::time_point paused_until_{};
};

enum class Answer {
  kAccepted,
  kClosed,  // the other end closed the connection
  kSilent,  // no answer in time
  kWrong,   // the answering end does not know the secret
};
/// The caller's side of a new connection, which is non-blocking afterwards. Fills in `hello`'s random number and MAC.
Answer introduce(int socket, Hello hello, const Key& key, std::chrono::milliseconds patience, Key& session);

}  // namespace graphpipe::runtime
