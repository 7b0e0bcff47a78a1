#include "tests/crash/disk_events.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

namespace crash {
namespace {

constexpr int kRanks = 8;
constexpr size_t kEntries = 4096, kPath = 240;

// Shared by all processes of a run; written by any thread of them.
struct Entry {
  Operation operation;
  int64_t size;
  char path[kPath], earlier[kPath];
  std::atomic<bool> whole, done;
};
struct Shared {
  char folder[kPath];
  KillPoint kill_point;
  std::atomic<int64_t> events[kRanks];
  std::atomic<size_t> entries;
  Entry journal[kEntries];
};

Shared* shared() {
  static Shared* const place =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return place;
}

int own_rank = -1;
pid_t launcher = 0;

bool is_watched(const char* path) {
  const size_t length = std::strlen(shared()->folder);
  return own_rank >= 0 && length > 0 && std::strncmp(path, shared()->folder, length) == 0;
}

// Whether the call that begins now is the one to die in.
bool is_last_call() {
  const int64_t event = shared()->events[own_rank].fetch_add(1);
  return shared()->kill_point.rank == own_rank && shared()->kill_point.event == event;
}

void die() {
  switch (shared()->kill_point.victim) {
    case Victim::kRank:
      kill(getpid(), SIGKILL);
      break;
    case Victim::kLauncher:
      kill(launcher, SIGKILL);
      break;
    case Victim::kAll:
      kill(0, SIGKILL);  // the group that the launcher made
      break;
  }
  pause();  // until the news of the launcher's death is here
}

// Null where the journal is full.
Entry* note(Operation operation, const char* path, const char* earlier, int64_t size) {
  const size_t index = shared()->entries.fetch_add(1);
  if (index >= kEntries) return nullptr;
  Entry& entry = shared()->journal[index];
  entry.operation = operation;
  entry.size = size;
  std::strncpy(entry.path, path, kPath - 1);
  std::strncpy(entry.earlier, earlier, kPath - 1);
  entry.whole = true;
  return &entry;
}

// Whether a call that had begun when its process died has come to its end.
bool has_renamed(const Entry& entry) {
  struct stat status {};
  return lstat(entry.path, &status) == 0 && lstat(entry.earlier, &status) != 0;
}

bool path_of(int descriptor, char* path) {
  char link[40];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, kPath - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return true;
}

}  // namespace

void watch(const std::string& folder, const KillPoint& kill_point) {
  std::memset(static_cast<void*>(shared()), 0, sizeof(Shared));
  std::strncpy(shared()->folder, folder.c_str(), kPath - 1);
  shared()->kill_point = kill_point;
}

void become_rank(int rank, pid_t of_launcher) {
  own_rank = rank;
  launcher = of_launcher;
}

int64_t events_of(int rank) { return shared()->events[rank]; }

std::vector<DiskEvent> journal() {
  std::vector<DiskEvent> events;
  for (size_t i = 0; i < std::min(kEntries, shared()->entries.load()); ++i) {
    const Entry& entry = shared()->journal[i];
    if (entry.whole && (entry.done || has_renamed(entry)))
      events.push_back({entry.operation, entry.path, entry.earlier, entry.size});
  }
  return events;
}

}  // namespace crash

// These stand before libc's, for this program and the libraries that it loads.
extern "C" {

int fsync(int descriptor) {
  char path[crash::kPath];
  const bool watched = crash::path_of(descriptor, path) && crash::is_watched(path);
  if (watched && crash::is_last_call()) crash::die();
  struct stat status {};
  fstat(descriptor, &status);
  const int result = static_cast<int>(syscall(SYS_fsync, descriptor));
  if (watched && crash::is_last_call()) crash::die();
  if (!watched || result != 0) return result;
  // Whoever dies before this has told nobody that the bytes are safe: they may as well be lost.
  if (crash::Entry* entry =
          crash::note(crash::Operation::kFlush, path, "", S_ISDIR(status.st_mode) ? -1 : status.st_size))
    entry->done = true;
  return result;
}

int rename(const char* from, const char* to) noexcept {
  const bool watched = crash::is_watched(to);
  if (watched && crash::is_last_call()) crash::die();
  // Before the call: its process may die right after it, when the names have changed already.
  crash::Entry* const entry = watched ? crash::note(crash::Operation::kRename, to, from, 0) : nullptr;
  const int result = static_cast<int>(syscall(SYS_rename, from, to));
  if (watched && crash::is_last_call()) crash::die();
  if (entry != nullptr && result == 0) entry->done = true;
  if (entry != nullptr && result != 0) entry->whole = false;
  return result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (crash::is_watched(path) && crash::is_last_call()) crash::die();
  return static_cast<int>(syscall(SYS_mkdir, path, mode));
}

int unlinkat(int folder, const char* name, int flags) noexcept {
  char path[crash::kPath];
  if (folder >= 0 && crash::path_of(folder, path) && crash::is_watched(path) && crash::is_last_call()) crash::die();
  return static_cast<int>(syscall(SYS_unlinkat, folder, name, flags));
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  char path[crash::kPath];
  if (crash::own_rank >= 0 && crash::path_of(descriptor, path) && crash::is_watched(path) && crash::is_last_call()) {
    syscall(SYS_write, descriptor, bytes, count / 2);
    crash::die();
  }
  return syscall(SYS_write, descriptor, bytes, count);
}

}  // extern "C"
