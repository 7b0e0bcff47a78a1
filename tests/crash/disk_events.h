#pragma once
// What runs do with the files of one folder, seen from the outside: the calls of libc that change files are defined
// again in this test program (disk_events.cpp). They write down what has reached the disk, and can kill at one of them.
// No program that is installed has them.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace crash {

enum class Victim : uint8_t {
  kRank,      // the process itself
  kLauncher,  // the process that started the ranks
  kAll,       // every process of the run, as a power cut does
};

/// Kill at the `event`-th moment of rank `rank`, counted from 0: where a call begins, and for flushes and renames also
/// where it has ended and nobody has been told.
struct KillPoint {
  int rank = -1;
  int64_t event = -1;
  Victim victim = Victim::kRank;
};

enum class Operation : uint8_t { kFlush, kRename };
struct DiskEvent {
  Operation operation = Operation::kFlush;
  std::string path;     // of a rename: the new name
  std::string earlier;  // of a rename: the old one
  int64_t size = 0;     // of a flush: the bytes that are on the disk now; -1: it is a folder
};

/// From here on events below `folder` count, in this process and those that it forks.
void watch(const std::string& folder, const KillPoint& kill_point);
/// In a forked process: which rank it is, and who its launcher is.
void become_rank(int rank, pid_t launcher);
/// How many events each rank had since watch().
int64_t events_of(int rank);
/// What reached the disk since watch(), in order. A rename counts that was done when its process died in the call.
std::vector<DiskEvent> journal();

}  // namespace crash
