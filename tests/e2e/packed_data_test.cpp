// Parquet, Arrow and WebDataset files: the training of the same samples in .npy files, to the bit, and one clear error
// for files that do not fit.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "driver/launch/process.h"
#include "support/descriptor.h"
#include "tests/e2e/pipeline_run.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace fs = std::filesystem;

namespace {

// A Python with pyarrow: scripts/install_deps makes one.
std::string python() {
  const char* given = std::getenv("GRAPHPIPE_PYTHON");
  return given != nullptr ? given : GRAPHPIPE_SOURCE_DIR "/.deps/venv/bin/python";
}

struct PackedRun {
  int code = 0;
  std::string output;
  bool has(const std::string& part) const { return output.find(part) != std::string::npos; }
};

std::string npy_folder() { return read_reference("dlrm").folder + "/data"; }

// dlrm's data in all forms, and with faults.
const std::string& packed_folder() {
  static const std::string folder = [] {
    std::string path = work_folder("packed");
    fs::remove_all(path);
    const auto made = driver::run_and_collect(
        {.arguments = {python(), GRAPHPIPE_SOURCE_DIR "/tests/e2e/pack_files.py", npy_folder(), path}});
    REQUIRE(made.ok());
    CAPTURE(made->output);
    REQUIRE(made->ending.ok());
    return path;
  }();
  return folder;
}

std::string cache_folder() { return work_folder("packed_cache"); }

PackedRun run_packed(std::vector<std::string> words, std::vector<std::string> environment = {}) {
  words.insert(words.begin(), GRAPHPIPE_BINARY_DIR "/bin/graphpipe");
  environment.push_back("GRAPHPIPE_PYTHON=" + python());
  environment.push_back("GRAPHPIPE_DATA_CACHE=" + cache_folder());
  const auto finished = driver::run_and_collect({.arguments = std::move(words), .environment = environment});
  REQUIRE(finished.ok());
  return {finished->ending.exit_code, finished->output};
}

// The weights after two shuffled epochs whose last batches are not whole, with evaluations.
std::string trained(const std::string& name, const std::string& data, const std::vector<std::string>& more = {}) {
  const std::string weights = work_folder("packed_" + name + ".safetensors");
  std::vector<std::string> words = {"run",
                                    three_stage_folder(),
                                    "--data",
                                    data,
                                    "--eval-data",
                                    data,
                                    "--eval-every",
                                    "2",
                                    "--epochs",
                                    "2",
                                    "--shuffle",
                                    "--seed",
                                    "7",
                                    "--save",
                                    weights,
                                    "--log",
                                    weights + ".jsonl"};
  words.insert(words.end(), more.begin(), more.end());
  const PackedRun run = run_packed(std::move(words));
  CAPTURE(run.output);
  REQUIRE(run.code == 0);
  return weights;
}

PackedRun refused(const std::string& data) {
  return run_packed({"run", three_stage_folder(), "--data", packed_folder() + "/" + data});
}

}  // namespace

TEST_CASE("Parquet, Arrow and WebDataset files train as .npy files of the same samples, to the bit") {
  fs::remove_all(cache_folder());
  const std::string expected = trained("npy", npy_folder());
  // A log that a run has written is one that `report` reads.
  CHECK(
      run_packed({"report", three_stage_folder(), "--measured", expected + ".jsonl", "-o", expected + ".html"}).code ==
      0);
  const std::string all = packed_folder();
  CHECK(same_bytes(trained("folder", all + "/folder"), expected));
  CHECK(same_bytes(trained("pattern", all + "/folder/part-*.parquet"), expected));
  CHECK(same_bytes(trained("arrow", all + "/whole.arrow"), expected));
  CHECK(same_bytes(trained("stream", all + "/stream.arrow"), expected));
  CHECK(same_bytes(trained("tar", all + "/shard-{007..008}.tar"), expected));
  CHECK(same_bytes(trained("gzip", all + "/zip-{007..008}.tar.gz"), expected));
  // The folder and the pattern name the same files, which were unpacked once.
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(cache_folder())) {
    CHECK(entry.path().filename().string().size() == 64);
    ++folders;
  }
  CHECK(folders == 5);
  const PackedRun verified =
      run_packed({"verify", three_stage_folder(), "--data", all + "/whole.arrow", "--steps", "2"});
  CAPTURE(verified.output);
  CHECK(verified.code == 0);
}

TEST_CASE("lists and members that are shorter than a sample are filled up by --pad, and refused without") {
  const std::string all = packed_folder();
  const std::string expected = trained("filled", all + "/filled");
  CHECK(same_bytes(trained("shorter", all + "/shorter.parquet", {"--pad", "item=2"}), expected));
  CHECK(same_bytes(trained("shorter_tar", all + "/shorter.tar", {"--pad", "item=2"}), expected));
  CHECK(!same_bytes(trained("other_fill", all + "/shorter.parquet", {"--pad", "item=1"}), expected));
  const PackedRun without = refused("shorter.parquet"), tar = refused("shorter.tar");
  CHECK(without.code == 3);
  CHECK(without.has("--pad item=NUMBER"));
  CHECK(tar.code == 3);
  const PackedRun longer =
      run_packed({"run", three_stage_folder(), "--data", all + "/longer.parquet", "--pad", "item=0", "--steps", "1"});
  CHECK(longer.code == 3);
  CHECK(longer.has("column 'item' has a list of 5 elements in row 3"));
}

TEST_CASE("a run over packed files goes on from its checkpoint, to the bit, and not over others") {
  const std::string shards = packed_folder() + "/shard-{007..008}.tar", checkpoints = work_folder("packed_checkpoints");
  const std::string whole = work_folder("packed_whole.safetensors"), again = work_folder("packed_again.safetensors");
  fs::remove_all(checkpoints);
  const auto run = [&](const std::string& data, const std::string& steps, std::vector<std::string> more) {
    std::vector<std::string> words = {"run", three_stage_folder(), "--data",       data,   "--steps",
                                      steps, "--shuffle",          "--last-batch", "train"};
    words.insert(words.end(), more.begin(), more.end());
    return run_packed(std::move(words));
  };
  REQUIRE(run(shards, "5", {"--save", whole}).code == 0);
  REQUIRE(run(shards, "3", {"--checkpoint", checkpoints}).code == 0);
  REQUIRE(run(shards, "5", {"--resume", checkpoints, "--save", again}).code == 0);
  CHECK(same_bytes(whole, again));
  const PackedRun other = run(packed_folder() + "/whole.arrow", "5", {"--resume", checkpoints});
  CHECK(other.code == 2);
  CHECK(other.has("the checkpoint's run trained on other data"));
}

TEST_CASE("files that do not fit are refused before the first process starts, with file, column and row") {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"no-column.parquet", {"no-column.parquet", "it has no column 'click'"}},
      {"double.parquet", {"column 'click' holds 'double'; the input is float32[]"}},
      {"null.parquet", {"column 'item' has a null in row 5"}},
      {"ragged.parquet", {"column 'item' has lists of 4 elements in row 0, and of 1 in row 5"}},
      {"id.parquet", {"item/000000.id.parquet.npy", "row 5, column 2", "1099511627776"}},
      {"cut.parquet", {"cut.parquet", "pyarrow cannot read it"}},
      {"cut.tar", {"cut.tar", "it cannot be read after sample"}},
      {"cut.tar.gz", {"cut.tar.gz", "it cannot be read after sample"}},
      {"plain.tgz", {"plain.tgz", "it is no tar file, or not compressed as its name says"}},
      {"names.tar.gz", {"a header declares 16777216 bytes"}},
      {"large.tar", {"member 'key.item.npy' has 1048576 bytes, and a sample is int64[4]"}},
      {"outside.tar", {"sample '../../outside", "has no"}},
      {"none-*.tar", {"no file has such a name"}},
      {"absent.parquet", {"absent.parquet", "No such file"}},
  };
  for (const auto& [file, parts] : cases) {
    const PackedRun run = refused(file);
    CAPTURE(file);
    CAPTURE(run.output);
    CHECK(run.code == 3);
    CHECK(!run.has("\x1b"));
    CHECK(!run.has("Traceback"));
    for (const std::string& part : parts) CHECK(run.has(part));
  }
  for (const auto& entry : fs::directory_iterator(cache_folder()))
    CHECK(!entry.path().filename().string().starts_with("."));
}

TEST_CASE("of a folder of splits one is to be named") {
  const std::string splits = packed_folder() + "/splits";
  fs::remove_all(splits);
  for (const char* split : {"train", "test"}) {
    fs::create_directories(splits + "/" + split);
    fs::copy_file(packed_folder() + "/whole.arrow", splits + "/" + split + "/data-00000-of-00001.arrow");
    std::ofstream(splits + "/" + split + "/state.json") << "{}";
  }
  const PackedRun run = refused("splits");
  CHECK(run.code == 3);
  CHECK(run.has("folders of Parquet, Arrow or tar files such as 'test'"));
  CHECK(refused("splits/train").code == 0);
}

TEST_CASE("without pyarrow a Parquet file is refused with what to install, and tar files are read") {
  const std::string hidden = work_folder("packed_without");
  fs::create_directories(hidden + "/pyarrow");
  std::ofstream(hidden + "/pyarrow/__init__.py") << "raise ImportError('hidden')\n";
  const auto run = [&](const std::string& data) {
    return run_packed({"run", three_stage_folder(), "--data", packed_folder() + "/" + data, "--steps", "1"},
                      {"PYTHONPATH=" + hidden});
  };
  fs::remove_all(cache_folder());
  const PackedRun parquet = run("folder");
  CHECK(parquet.code == 5);
  CHECK(parquet.has("pip install pyarrow"));
  CHECK(run("shard-{007..008}.tar").code == 0);
}

TEST_CASE("the cache keeps to its limit: what was unused for the longest time goes, but not what a run reads") {
  fs::remove_all(cache_folder());
  const auto run = [&](const std::string& data, const std::string& limit) {
    return run_packed({"run", three_stage_folder(), "--data", packed_folder() + "/" + data, "--steps", "1"},
                      {"GRAPHPIPE_DATA_CACHE_GIB=" + limit});
  };
  const auto cached = [] {
    std::set<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(cache_folder())) folders.insert(entry.path());
    return folders;
  };
  REQUIRE(run("whole.arrow", "1").code == 0);
  const std::set<fs::path> first = cached();
  REQUIRE(run("shard-007.tar", "0").code == 0);
  CHECK(cached().size() == 2);  // one was used a moment ago, the other is in use
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const fs::path& folder : cached()) fs::last_write_time(folder, long_ago);
  {
    const Descriptor reader(::open(first.begin()->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(::flock(reader.get(), LOCK_SH) == 0);
    const PackedRun next = run("shard-008.tar", "0");
    CHECK(next.code == 0);
    CHECK(next.has("removed 1 unused from the cache of unpacked data"));
    CHECK(cached().contains(*first.begin()));
    CHECK(cached().size() == 2);
  }
  for (const fs::path& folder : cached()) fs::last_write_time(folder, long_ago);
  REQUIRE(run("whole.arrow", "1").code == 0);  // as it is there
  CHECK(cached().size() == 2);
  CHECK(run("whole.arrow", "much").code == 5);
}

TEST_CASE("a run does not write over its packed data") {
  const PackedRun run = run_packed({"run", three_stage_folder(), "--data", packed_folder() + "/whole.arrow", "--save",
                                    packed_folder() + "/whole.arrow"});
  CHECK(run.code == 2);
  CHECK(run.has("this file is training data"));
}
