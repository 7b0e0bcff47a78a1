// The calls of NCCL that the transport makes, for communicators of two ranks on one host, over POSIX shared memory.
// As strict as NCCL where a mistake would hang or corrupt a GPU run:
// - a send ends only when its receiver has taken the last byte; operations to one peer go in the order of issue;
// - sends and receives of one group go on side by side, those of two groups on one stream do not;
// - a non-blocking communicator takes a group only when its state was asked for: who goes on before that finds the
//   stream without the message;
// - both ends of a message name one size, else the communicator fails.

#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/fake_nccl/stream.h"

namespace {

constexpr size_t kChunk = 1 << 20;
constexpr std::chrono::seconds kDeadlock{60};

// One direction of a communicator. `full` passes the chunk from sender to receiver and back.
struct Pipe {
  std::atomic<uint32_t> full;
  uint64_t message_bytes;
  uint64_t chunk_bytes;
  std::byte chunk[kChunk];
};
struct Shared {
  std::atomic<uint32_t> joined;
  Pipe from_rank[2];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

struct Operation {
  bool is_send = false;
  std::byte* data = nullptr;
  size_t bytes = 0;
  size_t passed = 0;
  bool under_way = false;  // a chunk of this send waits for its receiver
  bool finished = false;
};

struct Group {
  cudaStream_t stream = nullptr;
  std::vector<Operation> operations;
};

}  // namespace

struct ncclComm {
  int rank = 0;
  bool blocking = true;
  std::string name;
  Shared* shared = nullptr;
  std::atomic<bool> ready{false};
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::vector<Group> collected;  // issued, and not yet given to their streams
};

namespace {

thread_local int group_depth = 0;
thread_local std::vector<ncclComm*> grouped;

bool send_some(Pipe& pipe, Operation& operation) {
  if (pipe.full.load(std::memory_order_acquire) != 0) return false;
  if (operation.under_way && operation.passed == operation.bytes) return operation.finished = true;
  pipe.message_bytes = operation.bytes;
  pipe.chunk_bytes = std::min(kChunk, operation.bytes - operation.passed);
  std::copy_n(operation.data + operation.passed, pipe.chunk_bytes, pipe.chunk);
  operation.passed += pipe.chunk_bytes;
  pipe.full.store(1, std::memory_order_release);
  return operation.under_way = true;
}

bool receive_some(Pipe& pipe, Operation& operation, std::atomic<ncclResult_t>& error) {
  if (pipe.full.load(std::memory_order_acquire) == 0) return false;
  if (pipe.message_bytes != operation.bytes) error = ncclInvalidUsage;
  const size_t room = operation.bytes - std::min(operation.bytes, operation.passed);
  std::copy_n(pipe.chunk, std::min(room, static_cast<size_t>(pipe.chunk_bytes)), operation.data + operation.passed);
  operation.passed += pipe.chunk_bytes;
  operation.finished = operation.passed >= pipe.message_bytes;
  pipe.full.store(0, std::memory_order_release);
  return true;
}

// What a kernel does: runs in the stream's thread until all is through.
void pass_group(ncclComm& comm, std::vector<Operation> operations) {
  const auto end = std::chrono::steady_clock::now() + kDeadlock;
  for (;;) {
    Operation* next[2] = {};  // the first unfinished receive and send
    for (Operation& operation : operations)
      if (!operation.finished && next[operation.is_send] == nullptr) next[operation.is_send] = &operation;
    if (next[0] == nullptr && next[1] == nullptr) return;
    bool moved = false;
    if (next[1] != nullptr) moved |= send_some(comm.shared->from_rank[comm.rank], *next[1]);
    if (next[0] != nullptr) moved |= receive_some(comm.shared->from_rank[1 - comm.rank], *next[0], comm.error);
    if (moved) continue;
    if (std::chrono::steady_clock::now() > end) {
      comm.error = ncclSystemError;
      return;
    }
    graphpipe::fake::pause();
  }
}

void launch(ncclComm& comm) {
  for (Group& group : comm.collected)
    graphpipe::fake::stream_of(group.stream).push([&comm, operations = std::move(group.operations)] {
      pass_group(comm, operations);
    });
  comm.collected.clear();
}

ncclResult_t end_group() {
  bool in_progress = false;
  for (ncclComm* comm : std::exchange(grouped, {})) {
    if (comm->blocking) launch(*comm);
    else in_progress = true;
  }
  return in_progress ? ncclInProgress : ncclSuccess;
}

ncclResult_t issue(ncclComm* comm, cudaStream_t stream, const Operation& operation, int peer) {
  if (!comm->ready || peer != 1 - comm->rank) return ncclInvalidUsage;
  if (std::ranges::find(grouped, comm) == grouped.end()) {
    grouped.push_back(comm);
    comm->collected.push_back({stream, {}});
  }
  if (comm->collected.back().stream != stream) return ncclInvalidUsage;
  comm->collected.back().operations.push_back(operation);
  return group_depth == 0 ? end_group() : ncclSuccess;
}

// Both ranks map one file of memory; the second one takes its name away.
void meet(ncclComm& comm) {
  const int fd = shm_open(comm.name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0)
    memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) {
    comm.error = ncclSystemError;
    return;
  }
  comm.shared = static_cast<Shared*>(memory);
  if (comm.shared->joined.fetch_add(1) == 1) shm_unlink(comm.name.c_str());
  const auto end = std::chrono::steady_clock::now() + kDeadlock;
  while (comm.shared->joined != 2) {
    if (std::chrono::steady_clock::now() > end) {
      shm_unlink(comm.name.c_str());
      comm.error = ncclSystemError;
      return;
    }
    graphpipe::fake::pause();
  }
  comm.ready = true;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  uint64_t words[2];
  if (getrandom(words, sizeof words, 0) != static_cast<ssize_t>(sizeof words)) return ncclSystemError;
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "/fake-nccl-%016lx%016lx", words[0], words[1]);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (ranks != 2 || rank < 0 || rank > 1) return ncclInvalidArgument;
  auto* made = new ncclComm;  // ends with the process, as the transport's do
  made->rank = rank;
  made->blocking = config == nullptr || config->blocking != 0;
  made->name = id.internal;
  *comm = made;
  if (!made->blocking) {
    std::thread([made] { meet(*made); }).detach();
    return ncclInProgress;
  }
  meet(*made);
  return made->error;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->error;
  if (*state != ncclSuccess) return ncclSuccess;
  if (!comm->ready) *state = ncclInProgress;
  else launch(*comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  return --group_depth == 0 ? end_group() : ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (type != ncclUint8) return ncclInvalidArgument;
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return issue(comm, stream, {.is_send = true, .data = bytes, .bytes = count}, peer);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclUint8) return ncclInvalidArgument;
  return issue(comm, stream, {.data = static_cast<std::byte*>(data), .bytes = count}, peer);
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage (of the fake NCCL)" : "an error of the fake NCCL";
}

}  // extern "C"
