// Text files to micro-batches, prepared by threads and resumable, without torch.
//   loader FILE...     without a file it reads its own source
#include <tightloop/error.h>
#include <tightloop/loader.h>
#include <tightloop/tokenizer.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>

using namespace tightloop;

namespace {

std::unique_ptr<Tokenizer> train_tokenizer(const std::vector<std::string>& files) {
  BpeTrainOptions options;
  options.vocab_size = 512;
  size_t next = 0;
  return train_bpe(options, [&](std::string& document) {
    if (next == files.size()) return false;
    std::ifstream file(files[next++]);
    document.assign(std::istreambuf_iterator<char>(file), {});
    return true;
  });
}

uint64_t checksum(const Batch& batch) {
  uint64_t sum = static_cast<uint64_t>(batch.supervised);
  for (int64_t i = 0; i < batch.rows * batch.length; ++i)
    sum = sum * 1099511628211u + static_cast<uint64_t>(batch.inputs[i]);
  return sum;
}

void run(std::vector<std::string> files) {
  const auto tokenizer = train_tokenizer(files);

  DataConfig config;
  config.train = std::move(files);
  config.holdout = 0;
  const Dataset data = load_dataset(config, {}, *tokenizer);
  std::printf("%llu tokens in %llu documents, vocabulary %d\n",
              static_cast<unsigned long long>(data.train->tokens()),
              static_cast<unsigned long long>(data.train->size()), tokenizer->vocab_size());

  LoaderOptions options;
  options.rows = 4;
  options.seq_len = 32;
  options.seed = 7;
  constexpr int64_t kBatches = 200;
  Loader loader(data.train, options);
  const auto start = std::chrono::steady_clock::now();
  uint64_t last = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < kBatches; ++i) {
    const Batch& batch = loader.next();
    last = checksum(batch);
    tokens += batch.supervised;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%lld batches, %.1f million tokens/s\n", static_cast<long long>(kBatches),
              static_cast<double>(tokens) / seconds.count() / 1e6);

  // Which rows come is a function of the seed: another loader, told to begin there, has the same batch.
  options.first_batch = kBatches - 1;
  options.threads = 0;
  Loader resumed(data.train, options);
  if (checksum(resumed.next()) != last) throw data_error("a resumed loader gave another batch");
  const std::string text = "tokens and back";
  if (tokenizer->decode(tokenizer->encode(text)) != text) throw data_error("text came back different");
  std::printf("loader: resumed at batch %lld, the same bits\n", static_cast<long long>(kBatches - 1));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? std::vector<std::string>(argv + 1, argv + argc) : std::vector<std::string>{__FILE__});
  } catch (const Error& error) {
    std::fprintf(stderr, "loader: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
