// What reading costs a step, with and without reading ahead: shuffled samples of a file that is in the page cache, and
// of one that is not, before a computation of a given length.
//
//     build/release/bench/read_ahead [FOLDER]        default: the folder for temporary files
//
// The folder should lie on the disk in question, not in memory. The file has 256 MiB.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/io/data.h"

using namespace graphpipe;
using namespace graphpipe::runtime;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSamples = 65536, kFloats = 1024, kBatch = 512, kMicroBatch = 128, kSteps = 24;
constexpr double kComputeSeconds = 0.03;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void write_data(const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(kSamples) + ", " +
                       std::to_string(kFloats) + "), }";
  header.resize(128 - 10 - 1, ' ');
  header += '\n';
  out << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size()) << '\0' << header;
  std::vector<float> row(kFloats);
  for (int64_t i = 0; i < kSamples; ++i) {
    for (float& x : row) x = static_cast<float>(i);
    out.write(reinterpret_cast<const char*>(row.data()), kFloats * sizeof(float));
  }
}

void drop_from_cache(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  fsync(file);
  if (posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) std::perror("posix_fadvise");
  close(file);
}

void touch(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(1 << 20);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())))
    ;
}

// Mean seconds per step from its second one on, beside the computation.
double measure(const std::string& folder, bool reads_ahead) {
  static const DimRow kDims[] = {{1, 1}, {kFloats, 0}};
  static const DataRow kRow{.name = "x", .tensor = {ElementType::kFloat32, kDims, 0, 1}, .slot = 0};
  const wire::DataTable table{.batch = kBatch, .entries = {{.name = "x", .dims = {1, kFloats}, .ids = {}}}};
  const auto data = data_folder(folder, table, kBatch, {.shuffle = true, .seed = 1}, reads_ahead);
  double waited = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t first = 0; first < kBatch; first += kMicroBatch) {
      const Clock::time_point start = Clock::now();
      const at::Tensor item = data->item(kRow, step, {first, first + kMicroBatch});
      if (step > 0) waited += seconds_since(start);
      const Clock::time_point computes = Clock::now();
      while (seconds_since(computes) < kComputeSeconds / (kBatch / kMicroBatch))
        ;
    }
  }
  return waited / static_cast<double>(kSteps - 1);
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::string folder =
      (fs::path(argc > 1 ? argv[1] : fs::temp_directory_path().c_str()) / "read_ahead_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return std::perror(folder.c_str()), 5;
  const std::string path = folder + "/x.npy";
  write_data(path);
  std::printf("%lld shuffled samples of %lld KiB a step, %.0f ms of computing\n", static_cast<long long>(kBatch),
              static_cast<long long>(kFloats * 4 / 1024), kComputeSeconds * 1e3);
  for (const bool cold : {false, true})
    for (const bool reads_ahead : {false, true}) {
      cold ? drop_from_cache(path) : touch(path);
      std::printf("%s file, %s: a step waits %.2f ms for its data\n", cold ? "cold" : "warm",
                  reads_ahead ? "reading ahead" : "reading when asked", measure(folder, reads_ahead) * 1e3);
    }
  fs::remove_all(folder);
}
