// Trained weights back into the model's file, and out for PyTorch.

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "driver/pipeline/parameter_bytes.h"
#include "files/safetensors.h"
#include "frontend/import_onnx.h"
#include "support/mapped_file.h"
#include "tests/driver/ask.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace export_test {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("graphpipe-export-" + std::to_string(getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return path / name; }
  fs::path path;
};

// What was trained: every float is another one, which its place tells.
std::string trained_bytes(const files::TensorEntry& entry, std::string_view bytes, size_t index) {
  std::string out(bytes);
  if (entry.dtype != ir::DType::kFloat32) return out;
  for (size_t at = 0; at + sizeof(float) <= out.size(); at += sizeof(float)) {
    const auto value = static_cast<float>(index) + static_cast<float>(at) / 4096;
    std::memcpy(out.data() + at, &value, sizeof value);
  }
  return out;
}

struct Weights {
  std::map<std::string, std::string> bytes;  // by name
  std::vector<files::TensorToWrite> headers;
};

Weights read_weights(const std::string& path) {
  const MappedFile file = MappedFile::open(path).value();
  Weights weights;
  const auto index = files::read_safetensors(path);
  REQUIRE(index.ok());
  for (const files::TensorEntry& entry : index->tensors) {
    weights.headers.push_back({entry.name, entry.dtype, entry.shape});
    weights.bytes[entry.name.raw()] =
        file.text().substr(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.length));
  }
  return weights;
}

void write(const std::string& path, const Weights& weights) {
  const auto source = [&](size_t index, const files::ByteSink& sink) {
    return sink(weights.bytes.at(weights.headers[index].name.raw()));
  };
  REQUIRE(files::write_safetensors(path, weights.headers, source).ok());
}

frontend::Imported import_file(const std::string& path) {
  frontend::ImportRequest request;
  request.spec.path = ModelText(path);
  auto imported = frontend::import_onnx(request);
  REQUIRE(imported.ok());
  return std::move(imported).value();
}

/// Writes other weights for the model, as a run would save them.
Weights train(const std::string& model, const Folder& folder) {
  const frontend::Imported imported = import_file(model);
  const std::string before = folder.file("before.safetensors");
  REQUIRE(driver::write_weights(before, imported.graph, {.model = model, .trusted_root = ""}).ok());
  Weights all = read_weights(before);
  Weights trained;
  std::set<std::string> constants;
  for (const ir::ParamId id : imported.graph.param_ids())
    if (imported.graph.param(id).kind == ir::ParamKind::kConstant)
      constants.insert(imported.graph.param(id).name.raw());
  const auto index = files::read_safetensors(before);
  const std::vector<files::TensorEntry>& entries = index->tensors;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (constants.contains(entries[i].name.raw())) continue;
    trained.headers.push_back({entries[i].name, entries[i].dtype, entries[i].shape});
    trained.bytes[entries[i].name.raw()] = trained_bytes(entries[i], all.bytes[entries[i].name.raw()], i);
  }
  write(folder.file("trained.safetensors"), trained);
  return trained;
}

size_t node_count(const ir::Graph& graph) {
  size_t count = 0;
  for ([[maybe_unused]] const ir::NodeId id : graph.node_ids()) ++count;
  return count;
}

std::string model_of(const std::string& name) {
  return GRAPHPIPE_SOURCE_DIR "/tests/data/models/" + name + "/model.onnx";
}

}  // namespace

TEST_CASE("an exported model is the model with the new weights, and else the same") {
  for (const auto& [name, loss] : std::vector<std::pair<std::string, std::string>>{
           {"clip_like", "contrastive:similarity"}, {"gpt2_like", "cross_entropy:logits,label"}}) {
    CAPTURE(name);
    const Folder folder;
    const std::string model = model_of(name), plan = folder.file("plan.json"), out = folder.file("trained.onnx");
    const Answer planned =
        ask({"plan", model, "--loss", loss, "--devices", "2", "--planner", "equal-split", "-o", plan, "-q"});
    CAPTURE(planned.err);
    REQUIRE(planned.code == 0);
    const Weights trained = train(model, folder);
    const Answer answer = ask({"export", plan, "--weights", folder.file("trained.safetensors"), "-o", out});
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    const frontend::Imported before = import_file(model), after = import_file(out);
    CHECK(node_count(after.graph) == node_count(before.graph));
    const std::string saved = folder.file("after.safetensors");
    REQUIRE(driver::write_weights(saved, after.graph, {.model = out, .trusted_root = ""}).ok());
    const Weights weights = read_weights(saved);
    size_t compared = 0;
    for (const auto& [tensor, bytes] : weights.bytes) {
      CAPTURE(tensor);
      const auto found = trained.bytes.find(tensor);
      if (found != trained.bytes.end()) ++compared;
      const Weights original = read_weights(folder.file("before.safetensors"));
      CHECK((bytes == (found == trained.bytes.end() ? original.bytes.at(tensor) : found->second)));
    }
    CHECK(compared == trained.bytes.size());
  }
}

TEST_CASE("a state_dict has shared weights under each of their names") {
  const Folder folder;
  const std::string model = model_of("gpt2_like"), plan = folder.file("plan.json"), rules = folder.file("rules.txt");
  const Weights trained = train(model, folder);
  // A name that the file lacks, since the module ties it to one that it has.
  const std::string tied = trained.bytes.begin()->first;
  std::ofstream(rules) << "head.of.the.module tie " << tied << "\n";
  REQUIRE(ask({"plan", model, "--loss", "cross_entropy:logits,label", "--devices", "2", "--planner", "equal-split",
               "--parameters", rules, "-o", plan, "-q"})
              .code == 0);
  const std::string out = folder.file("state_dict.safetensors");
  REQUIRE(ask({"export", plan, "--weights", folder.file("trained.safetensors"), "-o", out}).code == 0);
  const Weights state = read_weights(out);
  size_t names = 0;
  const frontend::Imported imported = import_file(model);
  for (const ir::ParamId id : imported.graph.param_ids()) {
    const ir::Param& param = imported.graph.param(id);
    if (param.kind == ir::ParamKind::kConstant) continue;
    names += 1 + param.aliases.size();
    for (const ModelText& alias : param.aliases)
      CHECK((state.bytes.at(alias.raw()) == trained.bytes.at(param.name.raw())));
  }
  CHECK((state.bytes.at("head.of.the.module") == trained.bytes.at(tied)));
  CHECK(state.bytes.size() == names + 1);
  // As a module without the tie leaves them.
  Weights apart = state;
  apart.bytes.at("head.of.the.module").front() ^= 1;
  write(folder.file("apart.safetensors"), apart);
  const std::string again = folder.file("again.safetensors");
  REQUIRE(ask({"export", plan, "--weights", out, "-o", again}).code == 0);
  const Answer refused = ask({"export", plan, "--weights", folder.file("apart.safetensors"), "-o", again});
  CHECK(refused.code == 3);
  CHECK(holds(refused.err, "other numbers for '" + tied + "' than for 'head.of.the.module'"));
}

TEST_CASE("weights that are not finite are not exported") {
  const Folder folder;
  const std::string model = model_of("clip_like"), plan = folder.file("plan.json");
  REQUIRE(ask({"plan", model, "--loss", "contrastive:similarity", "--devices", "2", "--planner", "equal-split", "-o",
               plan, "-q"})
              .code == 0);
  train(model, folder);
  const std::string weights = folder.file("trained.safetensors");
  std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  const float infinite = std::numeric_limits<float>::infinity();
  file.seekp(static_cast<std::streamoff>(sizeof header + header));
  file.write(reinterpret_cast<const char*>(&infinite), sizeof infinite);
  file.close();
  for (const char* out : {"out.onnx", "out.safetensors"}) {
    const Answer answer = ask({"export", plan, "--weights", weights, "-o", folder.file(out)});
    CHECK(answer.code == 3);
    CHECK(holds(answer.err, "are not finite: element ["));
    CHECK(!fs::exists(folder.file(out)));
  }
}

TEST_CASE("weights of another model, and files that are no place for an export, are refused") {
  const Folder folder;
  const std::string model = folder.file("model.onnx"), plan = folder.file("plan.json");
  fs::copy_file(model_of("clip_like"), model);
  REQUIRE(ask({"plan", model, "--loss", "contrastive:similarity", "--devices", "2", "--planner", "equal-split", "-o",
               plan, "-q"})
              .code == 0);
  train(model_of("dlrm"), folder);
  const std::string weights = folder.file("trained.safetensors");
  const Answer other = ask({"export", plan, "--weights", weights, "-o", folder.file("out.onnx")});
  CHECK(other.code == 3);
  CHECK(holds(other.err, "hold no such parameter"));
  CHECK(!fs::exists(folder.file("out.onnx")));
  CHECK(ask({"export", plan, "--weights", weights, "-o", folder.file("out.txt")}).code == 2);
  CHECK(ask({"export", plan, "--weights", weights, "-o", model}).code == 2);
  CHECK(ask({"export", plan, "--weights", weights, "-o", weights}).code == 2);
}

}  // namespace export_test
