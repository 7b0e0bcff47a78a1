// What keeps others out of a run: the secret, the handshake, the frames' MACs, and what is mapped as shared memory.

#include "runtime/launch/handshake.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "runtime/error.h"
#include "runtime/launch/frames.h"
#include "runtime/launch/sockets.h"
#include "runtime/transport/segment.h"
#include "wire/secret.h"

using graphpipe::Descriptor;
using namespace graphpipe::runtime;
using graphpipe::Code;

namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    out += digits;
  }
  return out;
}

std::span<const std::byte> bytes_in(std::string_view words) { return std::as_bytes(std::span(words)); }

template <typename Work>
std::optional<Code> error_of(Work work) {
  try {
    work();
  } catch (const RunError& error) {
    return error.diagnostic().code;
  }
  return std::nullopt;
}

/// A folder of its own for one test.
struct ScratchFolder {
  ScratchFolder() {
    char name[] = "/tmp/graphpipe_authentication_XXXXXX";
    path = mkdtemp(name);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& words, mode_t mode) const {
    const std::string name = path + "/secret";
    std::filesystem::remove(name);
    std::ofstream(name) << words;
    chmod(name.c_str(), mode);
    return name;
  }
  std::string path;
};

const std::string kLong = "0123456789abcdef0123456789abcdef";

std::optional<Code> secret_from_file(const std::string& path) {
  unsetenv(graphpipe::wire::kSecretVariable);
  setenv(graphpipe::wire::kSecretFileVariable, path.c_str(), 1);
  const auto code = error_of([] {
    const Key found = find_secret();
    CHECK(found == key_of(kLong));
  });
  unsetenv(graphpipe::wire::kSecretFileVariable);
  return code;
}

}  // namespace

TEST_CASE("HMAC-SHA-256 has the values of RFC 4231") {
  Key key{};
  std::fill_n(key.begin(), 20, std::byte{0x0b});
  CHECK(hex(hmac_sha256(key, {bytes_in("Hi There")})) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  key = {};
  std::memcpy(key.data(), "Jefe", 4);
  CHECK(hex(hmac_sha256(key, {bytes_in("what do ya want "), bytes_in("for nothing?")})) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST_CASE("a secret comes from its variable, or from a file that is its user's alone; else it is refused") {
  const ScratchFolder folder;
  CHECK_FALSE(secret_from_file(folder.file(kLong + "\n", 0600)));
  CHECK_FALSE(secret_from_file(folder.file(kLong, 0400)));
  for (const mode_t wider : {0640, 0604, 0660, 0620, 0602, 0601}) {
    CAPTURE(wider);
    CHECK(secret_from_file(folder.file(kLong, wider)) == Code::kUsage);
  }
  CHECK(secret_from_file(folder.file("too short", 0600)) == Code::kUsage);
  CHECK(secret_from_file(folder.file(std::string(100'000, 'x'), 0600)) == Code::kUsage);
  CHECK(secret_from_file(folder.path) == Code::kUsage);
  CHECK(secret_from_file(folder.path + "/missing") == Code::kUsage);
  const std::string pipe = folder.path + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(secret_from_file(pipe) == Code::kUsage);
  if (geteuid() == 0) {
    const std::string of_other = folder.file(kLong, 0600);
    REQUIRE(chown(of_other.c_str(), 65534, 65534) == 0);
    CHECK(secret_from_file(of_other) == Code::kUsage);
  } else {
    std::cout << "SKIP: only root can give a file to another user\n";
  }
  CHECK(error_of([] { find_secret(); }) == Code::kUsage);
  setenv(graphpipe::wire::kSecretVariable, kLong.c_str(), 1);
  CHECK(find_secret() == key_of(kLong));
  CHECK(std::getenv(graphpipe::wire::kSecretVariable) == nullptr);
}

namespace {

struct Met {
  Answer answer;
  Answerer::State state;
  bool same_session;
};

// The caller has one key, the answerer another one, or the same.
Met meet(const Key& of_caller, const Key& of_answerer, const Hello& hello, Hello::Purpose purpose, const RunId& run) {
  auto [caller, answered] = connected_pair();
  Met met{.answer = Answer::kSilent, .state = Answerer::State::kWaits, .same_session = false};
  Key session{};
  std::thread calls([&, socket = caller.release()] {
    const Descriptor own(socket);
    met.answer = introduce(own.get(), hello, of_caller, std::chrono::seconds(5), session);
    if (met.answer == Answer::kAccepted) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  Answerer answerer(std::move(answered));
  while (met.state == Answerer::State::kWaits) {
    pollfd polled{.fd = answerer.descriptor(), .events = POLLIN, .revents = 0};
    poll(&polled, 1, 100);
    met.state = answerer.step(of_answerer, purpose, run);
  }
  const bool done = met.state == Answerer::State::kDone;
  const Key of_other_end = done ? answerer.take(of_answerer).session : Key{};
  if (!done) answerer = Answerer(Descriptor());  // closes
  calls.join();
  met.same_session = done && session == of_other_end;
  return met;
}

// What becomes of a connection whose other end says this and no more.
Answerer::State state_after(std::string_view words, bool closes) {
  auto [stranger, answered] = connected_pair();
  Answerer answerer(std::move(answered));
  REQUIRE(send(stranger.get(), words.data(), words.size(), 0) == static_cast<ssize_t>(words.size()));
  if (closes) stranger = {};
  return answerer.step(key_of(kLong), Hello::Purpose::kControl, {});
}

}  // namespace

TEST_CASE("two ends that know the secret agree on a key; others are refused by either end") {
  const Key key = key_of(kLong), other = key_of("another secret");
  const Met met = meet(key, key, {.rank = 3}, Hello::Purpose::kControl, {});
  CHECK(met.answer == Answer::kAccepted);
  CHECK(met.state == Answerer::State::kDone);
  CHECK(met.same_session);
  const Met wrong = meet(other, key, {.rank = 3}, Hello::Purpose::kControl, {});
  CHECK(wrong.answer == Answer::kWrong);
  CHECK(wrong.state == Answerer::State::kRefused);
  // A channel of another run with the same secret, and a connection for another purpose.
  CHECK(meet(key, key, {.purpose = Hello::Purpose::kChannel}, Hello::Purpose::kChannel, {std::byte{1}}).state ==
        Answerer::State::kRefused);
  CHECK(meet(key, key, {.purpose = Hello::Purpose::kChannel}, Hello::Purpose::kControl, {}).state ==
        Answerer::State::kRefused);
}

TEST_CASE("whatever a stranger says, an answerer neither waits for it nor lets it in") {
  using State = Answerer::State;
  CHECK(state_after("x", false) == State::kWaits);
  CHECK(state_after("x", true) == State::kRefused);
  CHECK(state_after(std::string(96, '\xff'), false) == State::kRefused);
  CHECK(state_after("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a stranger that asks for a page of more words "
                    "than a first message of ours\r\n\r\n",
                    false) == State::kRefused);
  Hello hello{.rank = 1};
  CHECK(state_after({reinterpret_cast<const char*>(&hello), sizeof hello}, false) == State::kRefused);
  // What somebody has heard a rank say.
  sign(hello, key_of(kLong));
  const std::string words(reinterpret_cast<const char*>(&hello), sizeof hello);
  CHECK(state_after(words, false) == State::kWaits);
  CHECK(state_after(words, true) == State::kRefused);
  CHECK(state_after(words + std::string(32, '\0'), false) == State::kRefused);
}

TEST_CASE("what the answerer has said is no proof when it is said back") {
  auto [stranger, answered] = connected_pair();
  Answerer answerer(std::move(answered));
  const Key key = key_of(kLong);
  Hello hello{.rank = 1};
  sign(hello, key);
  REQUIRE(send(stranger.get(), &hello, sizeof hello, 0) == sizeof hello);
  REQUIRE(answerer.step(key, Hello::Purpose::kControl, {}) == Answerer::State::kWaits);
  Reply reply;
  REQUIRE(recv(stranger.get(), &reply, sizeof reply, 0) == sizeof reply);
  REQUIRE(send(stranger.get(), reply.mac.data(), reply.mac.size(), 0) == static_cast<ssize_t>(reply.mac.size()));
  CHECK(answerer.step(key, Hello::Purpose::kControl, {}) == Answerer::State::kRefused);
}

namespace {

/// An Acceptor of this process, and the connections to it.
struct CalledAcceptor {
  CalledAcceptor() : acceptor(listen_at("127.0.0.1", port), key_of(kLong), Hello::Purpose::kControl, {}) {}
  Descriptor call() const { return connect_to("127.0.0.1", port, std::chrono::seconds(5)); }
  std::vector<pollfd> polled() const {
    std::vector<pollfd> polled;
    acceptor.add_to(polled);
    return polled;
  }
  /// Whether somebody who knows the secret gets in.
  bool lets_in() {
    bool accepted = false;
    std::thread caller([&] {
      const Descriptor socket = call();
      Key session{};
      accepted = socket && introduce(socket.get(), {.rank = 1}, key_of(kLong), std::chrono::seconds(20), session) ==
                               Answer::kAccepted;
    });
    size_t introduced = 0;
    const auto deadline = Answerer::Clock::now() + std::chrono::seconds(20);
    while (introduced == 0 && Answerer::Clock::now() < deadline) {
      std::vector<pollfd> events = polled();
      poll(events.data(), events.size(), 20);
      introduced = acceptor.step().size();
    }
    caller.join();
    return accepted && introduced == 1;
  }

  int32_t port = 0;
  Acceptor acceptor;
};

/// No descriptor can be opened as long as it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(STDERR_FILENO);
    close(lowest_free);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free), .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("who replays what a rank has said takes a limited number of slots of an Acceptor") {
  CalledAcceptor called;
  Hello hello{.rank = 1};
  sign(hello, key_of(kLong));
  std::vector<Descriptor> replays;
  for (size_t i = 0; i < Acceptor::kMaxReplied + 60; ++i) {
    replays.push_back(called.call());
    REQUIRE(send(replays.back().get(), &hello, sizeof hello, 0) == sizeof hello);
    CHECK(called.acceptor.step().empty());
    CHECK(called.polled().size() <= 1 + Acceptor::kMaxReplied);
  }
  CHECK(called.polled().size() == 1 + Acceptor::kMaxReplied);
  CHECK(called.lets_in());
}

TEST_CASE("an Acceptor that finds no descriptor left pauses, and accepts again") {
  CalledAcceptor called;
  const Descriptor caller = called.call();
  REQUIRE(send(caller.get(), "x", 1, 0) == 1);
  {
    const NoDescriptors none;
    std::vector<pollfd> events = called.polled();
    REQUIRE(poll(events.data(), events.size(), 20'000) == 1);
    CHECK(called.acceptor.step().empty());
    // Whoever polls for it now sleeps.
    events = called.polled();
    CHECK(poll(events.data(), events.size(), 0) == 0);
  }
  CHECK(called.lets_in());
}

namespace {

/// Bytes as one side sends them, and what the other side makes of bytes that come instead.
struct Forwarded {
  Forwarded() : key(key_of(kLong)) {
    auto [sender, between] = connected_pair();
    FrameStream stream(std::move(sender), key, FrameStream::Side::kOther);
    stream.send({.kind = FrameKind::kSet, .fields = {"key", "value"}});
    sent.resize(1000);
    sent.resize(static_cast<size_t>(recv(between.get(), sent.data(), sent.size(), 0)));
  }
  /// The frames that are taken, and whether the connection is over then.
  std::pair<int, bool> receive(const std::string& bytes, FrameStream::Side side = FrameStream::Side::kRankZero) const {
    auto [between, receiver] = connected_pair();
    REQUIRE(send(between.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    FrameStream stream(std::move(receiver), key, side);
    int frames = 0;
    while (const auto frame = stream.receive()) frames += frame->fields == std::vector<std::string>{"key", "value"};
    return {frames, stream.over()};
  }
  Key key;
  std::string sent;
};

}  // namespace

TEST_CASE("a frame arrives as it was sent, once, at the other side, or the connection is over") {
  const Forwarded forwarded;
  CHECK(forwarded.receive(forwarded.sent) == std::pair(1, false));
  for (size_t i = 0; i < forwarded.sent.size(); ++i) {
    CAPTURE(i);
    std::string changed = forwarded.sent;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const auto [frames, over] = forwarded.receive(changed);
    CHECK(frames == 0);
    // A larger size waits for bytes that do not come: what comes next is refused.
    CHECK((over || i < sizeof(uint32_t)));
  }
  CHECK(forwarded.receive(forwarded.sent + forwarded.sent) == std::pair(1, true));
  CHECK(forwarded.receive(forwarded.sent.substr(1)).first == 0);
  CHECK(forwarded.receive(forwarded.sent.substr(0, 20)) == std::pair(0, false));
  CHECK(forwarded.receive(forwarded.sent, FrameStream::Side::kOther) == std::pair(0, true));
  // A size of 1 GiB is refused before a byte of it is waited for.
  std::string huge = forwarded.sent;
  const uint32_t size = 1 << 30;
  std::memcpy(huge.data(), &size, sizeof size);
  CHECK(forwarded.receive(huge) == std::pair(0, true));
}

namespace {

constexpr int64_t kSegmentBytes = 1 << 16;

// What opening a SegmentDescriptor does that names this descriptor of ours.
std::optional<Code> open_forged(int descriptor) {
  const SegmentDescriptor segment{.pid = getpid(), .fd = descriptor, .size = kSegmentBytes, .rings = {}};
  return error_of([&] { Segment::open(segment); });
}

Descriptor file_in_memory(int64_t size, int seals) {
  Descriptor file(memfd_create("graphpipe-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(file.get(), size) == 0);
  REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

}  // namespace

TEST_CASE("where the limit of open files keeps a segment closed, the message names it") {
  SegmentDescriptor segment;
  const Segment own = Segment::make({}, segment);
  const NoDescriptors none;
  std::string hint;
  try {
    Segment::open(segment);
  } catch (const RunError& error) {
    hint = error.diagnostic().hint;
  }
  CHECK(hint == "raise the limit of open files (ulimit -n)");
}

TEST_CASE("a forged SegmentDescriptor maps nothing but a sealed file in memory of this user and that size") {
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  SegmentDescriptor segment;
  const Segment own = Segment::make({}, segment);
  CHECK_FALSE(error_of([&] { Segment::open(segment); }));
  CHECK(ftruncate(segment.fd, 0) != 0);  // nobody can cut it short under those that have mapped it

  CHECK_FALSE(open_forged(file_in_memory(kSegmentBytes, kAll).get()));
  CHECK(open_forged(file_in_memory(kSegmentBytes, F_SEAL_SEAL).get()) == Code::kPeerFailed);
  CHECK(open_forged(file_in_memory(kSegmentBytes, 0).get()) == Code::kPeerFailed);
  CHECK(open_forged(file_in_memory(kSegmentBytes / 2, kAll).get()) == Code::kPeerFailed);
  CHECK(open_forged(file_in_memory(kSegmentBytes, kAll | F_SEAL_WRITE).get()) == Code::kPeerFailed);

  const ScratchFolder folder;
  const std::string path = folder.file(std::string(kSegmentBytes, 'x'), 0600);
  CHECK(open_forged(Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC)).get()) == Code::kPeerFailed);
  CHECK(open_forged(Descriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)).get()) == Code::kPeerFailed);
  CHECK(open_forged(Descriptor(open(folder.path.c_str(), O_RDONLY | O_CLOEXEC)).get()) == Code::kPeerFailed);
  const std::string pipe = folder.path + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(open_forged(Descriptor(open(pipe.c_str(), O_RDWR | O_CLOEXEC)).get()) == Code::kPeerFailed);
  CHECK(open_forged(-1) == Code::kEnvironment);

  if (geteuid() == 0) {
    const Descriptor of_other = file_in_memory(kSegmentBytes, kAll);
    REQUIRE(fchown(of_other.get(), 65534, 65534) == 0);
    CHECK(open_forged(of_other.get()) == Code::kPeerFailed);
  } else {
    std::cout << "SKIP: only root can give a file to another user\n";
  }
}
