// A generated folder whose weights lie partly in a data file of the model.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "runtime/error.h"
#include "runtime/io/folder.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/sha256.h"
#include "tests/runtime/run_programs.h"
#include "tests/runtime/two_stage_plan.h"
#include "wire/manifest.h"
#include "wire/weight_parts.h"

using namespace graphpipe::runtime;
using namespace graphpipe::runtime::test;
namespace fs = std::filesystem;
namespace wire = graphpipe::wire;

namespace {

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string digest_of_file(const std::string& path) {
  const std::string bytes = bytes_of_file(path);
  return sha256_hex(std::as_bytes(std::span(bytes)));
}

// The folder of make_folder, with w0 and b0 in a data file behind bytes that are nobody's.
class SharedFolder {
 public:
  SharedFolder() : path_(make_folder(false, 16)) {
    const std::string weights = path_ + "/weights.safetensors";
    std::string data(64, '\7');
    std::vector<wire::WeightPart> parts;
    {
      const Safetensors all(weights);
      for (const char* name : {"w0", "b0"}) {
        const TensorPlace& place = *all.find(name);
        parts.push_back({.file = 0,
                         .tensor = {.name = graphpipe::ModelText(name),
                                    .shape = place.dims,
                                    .offset = static_cast<int64_t>(data.size()),
                                    .length = static_cast<int64_t>(place.bytes)}});
        data.append(static_cast<const char*>(all.view(place).data_ptr()), place.bytes);
      }
      write_safetensors(weights + ".rest", {{"w1", all.view(*all.find("w1")).clone()}});
    }
    fs::rename(weights + ".rest", weights);
    fs::create_directories(path_ + "/weights");
    std::ofstream(path_ + "/weights/0.bin", std::ios::binary) << data;
    std::ofstream(path_ + "/weights.txt") << wire::print_weight_parts(parts);
    wire::Manifest manifest{.plan = kFolderDigest, .files = {}};
    for (const char* name : {"weights.txt", "weights/0.bin", "weights.safetensors"}) {
      const std::string path = path_ + "/" + name;
      manifest.files.push_back(
          {.path = name, .size = static_cast<int64_t>(fs::file_size(path)), .sha256 = digest_of_file(path)});
    }
    std::ofstream(path_ + "/manifest.txt") << wire::print_manifest(manifest);
  }
  ~SharedFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  void change_byte(const std::string& name, size_t at) const {
    std::string bytes = bytes_of_file(*this / name);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    std::ofstream(*this / name, std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("all weights of a folder are read as one, wherever they lie") {
  const SharedFolder folder;
  const std::string whole = make_folder(false, 16);
  const Safetensors parts = Safetensors::of_folder(folder.path()), one = Safetensors::of_folder(whole);
  CHECK(parts.tensors().size() == 3);
  for (const auto& [name, place] : one.tensors()) {
    CAPTURE(name);
    REQUIRE(parts.find(name) != nullptr);
    CHECK(at::equal(parts.view(*parts.find(name)), one.view(place)));
    CHECK_FALSE(parts.find(name)->is_shared);
  }
  // The digest that checkpoints name their model by is of all files; of the only one, where there is one.
  CHECK(weights_digest(folder.path()) != weights_digest(whole));
  CHECK(weights_digest(whole) == digest_of_file(whole + "/weights.safetensors"));
  fs::remove_all(whole);
}

TEST_CASE("a file with a further name is not read in place while a program runs") {
  const SharedFolder folder;
  fs::create_hard_link(folder / "weights/0.bin", folder / "elsewhere");
  const Safetensors weights = Safetensors::of_folder(folder.path());
  CHECK(weights.find("w0")->is_shared);
  CHECK_FALSE(weights.find("w1")->is_shared);
}

TEST_CASE("training starts from weights of a data file as from others") {
  const TwoStagePlan plan({.one_device = true});
  const SharedFolder folder;
  const std::string whole = make_folder(false, 16);
  for (const std::string& path : {folder.path(), whole})
    CHECK(run_serial_process(plan.programs(), path, {"--data", path, "--save", path + "/trained"}).exit_code == 0);
  CHECK(bytes_of_file(folder / "trained") == bytes_of_file(whole + "/trained"));
  fs::remove_all(whole);
}

TEST_CASE("a data file that was changed, or is shorter or gone, is refused by name") {
  const TwoStagePlan plan({.one_device = true});
  const auto refuses = [&](const SharedFolder& folder, const std::string& words) {
    const RunEnd end = run_serial_process(plan.programs(), folder.path(), {"--data", folder.path()});
    CAPTURE(end.errors);
    return end.exit_code == 3 && end.errors.find(words) != std::string::npos;
  };
  {
    const SharedFolder folder;
    fs::create_hard_link(folder / "weights/0.bin", folder / "model.data");
    folder.change_byte("model.data", 100);
    CHECK(refuses(folder, "'weights/0.bin' is not the file that the manifest names: it is one with the model's data"));
  }
  {
    const SharedFolder folder;
    fs::resize_file(folder / "weights/0.bin", 100);
    CHECK(refuses(folder, "'weights/0.bin' is not the file"));
    CHECK_THROWS_AS(check_manifest(folder.path(), kFolderDigest, FolderCheck::kSizeOfWeights), RunError);
    // As where it becomes so behind the check.
    CHECK_THROWS_AS(Safetensors::of_folder(folder.path()), RunError);
  }
  {
    const SharedFolder folder;
    fs::remove(folder / "weights/0.bin");
    CHECK(refuses(folder, "weights/0.bin"));
  }
  {
    const SharedFolder folder;
    folder.change_byte("weights.txt", 25);
    CHECK(refuses(folder, "'weights.txt' is not the file"));
  }
}
