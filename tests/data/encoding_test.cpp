#include "data/read/encoding.h"

#include <fstream>

#include "core/files.h"
#include "core/random.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/gzip.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;

// A few sentences each, as these encodings have them.
const std::string kChinese =
    "\275\361\314\354\314\354\306\370\272\334\272\303\243\254\316\322\303\307\310\245\271\253\324\260\311\242"
    "\262\275\241\243\313\373\313\265\243\272\241\260\303\367\314\354\273\271\273\341\317\302\323\352\302\360"
    "\243\277\241\261\264\363\274\322\266\274\320\246\301\313\241\243";
const std::string kTraditional =
    "\244\265\244\321\244\321\256\360\253\334\246n\241A\247\332\255\314\245h\244\275\266\351\264\262\250B\241"
    "C\245L\273\241\241G\241u\251\372\244\321\301\331\267|"
    "\244U\253B\266\334\241H\241v\244j\256a\263\243\257\272\244F\241C";
const std::string kJapanese =
    "\215\241\223\372\202\315\202\306\202\304\202\340\227\307\202\242\223V\213C\202\305\202\267\201B\214\366"
    "\211\200\202\326\216U\225\340\202\311\215s\202\253\202\334\202\265\202\345\202\244\201B\201u\226\276\223"
    "\372\202\315\211J\202\305\202\267\202\251\201v\202\306\224\336\202\315\214\276\202\242\202\334\202\265"
    "\202\275\201B";
const std::string kKorean =
    "\277\300\264\303\300\272 \263\257\276\276\260\241 \270\305\277\354 \301\301\275\300\264\317\264\331. "
    "\277\354\270\256\264\302 \260\370\277\370\300\270\267\316 \273\352\303\245\300\273 "
    "\260\251\264\317\264\331. \261\327\264\302 \263\273\300\317 \272\361\260\241 \277\303\301\366 "
    "\271\260\276\372\275\300\264\317\264\331.";
const std::string kRussian =
    "\321\345\343\356\344\355\377 \356\367\345\355\374 \365\356\360\356\370\340\377 "
    "\357\356\343\356\344\340, \350 \354\373 \350\344\270\354 \343\363\353\377\362\374 \342 "
    "\357\340\360\352. \316\355 \361\357\360\356\361\350\353, \341\363\344\345\362 \353\350 "
    "\347\340\342\362\360\340 \344\356\346\344\374.";
const std::string kGerman =
    "Gestern war es sch\366n: Die B\344ume bl\374hten, und wir gingen \374ber die Stra\337e. Gr\374\337e aus "
    "K\366ln, f\374r alle.";

// "Вчера была хорошая погода, и мы гуляли в парке." in KOI8-R
const std::string kKoi8 =
    "\367\336\305\322\301 \302\331\314\301 \310\317\322\317\333\301\321 \320\317\307\317\304\301, \311 "
    "\315\331 \307\325\314\321\314\311 \327 \320\301\322\313\305.";
// "Wczoraj była ładna pogoda, więc poszliśmy na długi spacer." and "Včera bylo hezky, a tak jsme šli na
// dlouhou procházku; každý měl košík." in Windows-1250
const std::string kPolish = "Wczoraj by\263a \263adna pogoda, wi\352c poszli\234my na d\263ugi spacer.";
const std::string kCzech =
    "V\350era bylo hezky, a tak jsme \232li na dlouhou proch\341zku; ka\236d\375 m\354l ko\232\355k.";
const std::string kFrench =
    "Hier il a fait beau, et ma s\234ur a travers\351 le parc \340 pied: quel bon c\234ur, \347a va de soi.";

std::string utf16(const std::string& ascii, bool big) {
  std::string out;
  for (const char c : ascii) (out += big ? '\0' : c) += big ? c : '\0';
  return out;
}

TEST(Encoding, IsGuessedFromTheBytes) {
  const std::string english = "It was the best of times, it was the worst of times.\n";
  const std::vector<std::pair<std::string, std::string>> cases{
      {kChinese, "GB18030"},
      {kChinese + "\n" + english, "GB18030"},
      {kTraditional, "CP950"},
      {kJapanese, "CP932"},
      {kKorean, "CP949"},
      {kRussian, "WINDOWS-1251"},
      {kGerman, "WINDOWS-1252"},
      {kFrench, "WINDOWS-1252"},
      {kKoi8, "KOI8-R"},
      {kPolish, "WINDOWS-1250"},
      {kCzech, "WINDOWS-1250"},
      {"\xff\xfe" + utf16(english, false), "UTF-16"},
      {"\xfe\xff" + utf16(english, true), "UTF-16"},
      {utf16(english, false), "UTF-16LE"},
      {utf16(english, true), "UTF-16BE"},
  };
  for (const auto& [bytes, expected] : cases) EXPECT_EQ(likely_encoding(bytes).iconv, expected) << bytes;
  EXPECT_EQ(likely_encoding(english + "naïve 今天天气很好").name, "");
  EXPECT_EQ(likely_encoding("今天天气很好，我们去公园散步\xff").name, "UTF-8 with broken characters");
  EXPECT_EQ(likely_encoding("%PDF-1.7 ...").name, "a PDF");
  EXPECT_NE(likely_encoding(std::string("PK\x03\x04\x14\0\0", 7)).name.find("ZIP"), std::string::npos);
  Random random(1);
  std::string noise(4096, 0);
  for (char& byte : noise) byte = static_cast<char>(random.below(256));
  EXPECT_EQ(likely_encoding(noise).name, "binary data");
}

TEST(Encoding, TheCommandIsQuotedForTheShell) {
  EXPECT_EQ(conversion({"GBK", "GB18030", ""}, "it's.txt"),
            "Convert it: iconv -f GB18030 -t UTF-8 'it'\\''s.txt' > 'it'\\''s.utf8.txt'");
}

class OtherEncodings : public ::testing::Test {
 protected:
  DataConfig write(const std::string& name, const std::string& bytes) {
    write_file_whole(folder_ / name, bytes);
    DataConfig data;
    data.train = {(folder_ / name).string()}, data.documents = DocumentEnd::kLine, data.holdout = 0;
    return data;
  }
  static std::string refused(const DataConfig& data) {
    return testing::error_of(ExitCode::kData, [&] { load_dataset(data, {}, ByteTokenizer()); });
  }
  TempFolder folder_;
};

TEST_F(OtherEncodings, StopTheRunAndNameTheConversion) {
  std::string text;
  for (int i = 0; i < 5; ++i) text += kChinese + "\n";
  for (const auto when : {TokenizeWhen::kStart, TokenizeWhen::kLive}) {
    DataConfig data = write("novel.txt", text);
    data.tokenize = when;
    const std::string message = refused(data);
    EXPECT_NE(message.find("5 of 5 documents cannot be used"), std::string::npos) << message;
    EXPECT_NE(message.find("5 invalid_utf8"), std::string::npos) << message;
    EXPECT_NE(message.find("iconv -f GB18030 -t UTF-8 " + data.train[0] + " > "), std::string::npos)
        << message;
    EXPECT_NE(message.find("--data.on_bad_record skip"), std::string::npos) << message;
    EXPECT_NE(message.find("looks like GBK (GB18030). It would read: \"今天天气很好，"), std::string::npos)
        << message;
  }
  const std::string packed = refused(write("novel.txt.gz", testing::gzip(text)));
  EXPECT_NE(packed.find("iconv -f GB18030"), std::string::npos) << packed;
}

// A file of few documents is much of the text.
TEST_F(OtherEncodings, OfOneFileAmongOthersStopTheRunByItsBytes) {
  std::string good, german;
  for (int i = 0; i < 200; ++i) good += "A line of text in the file before it.\n\n";
  for (int i = 0; i < 20; ++i) german += kGerman + "\n";
  for (const std::string how : {"start", "live", "cache"}) {
    DataConfig data = write("latin1.txt", german);
    const std::string latin1 = data.train[0];
    data.train = {write("corpus.txt", good).train[0], latin1};
    data.documents = DocumentEnd::kBlankLine;
    if (how == "cache")
      data.cache = (folder_ / "cache").string();
    else
      data.tokenize = choice_named<TokenizeWhen>(how).value();
    const std::string message = refused(data);
    EXPECT_NE(message.find("1 of 201 documents, about 2"), std::string::npos) << message;
    EXPECT_NE(message.find("% of the bytes, cannot be used"), std::string::npos) << message;
    EXPECT_NE(message.find("iconv -f WINDOWS-1252 -t UTF-8 " + latin1), std::string::npos) << message;
    data.on_bad_record = OnBadRecord::kSkip;
    EXPECT_EQ(load_dataset(data, {}, ByteTokenizer()).bad.total(), 1u);
    data.on_bad_record = OnBadRecord::kAuto;
    refused(data);  // from what was written down, too
  }
}

// Up to 5 % may be bad, or fewer than three short documents; who says skip means it.
TEST_F(OtherEncodings, AFewBadDocumentsAreSkipped) {
  std::string good;
  for (int i = 0; i < 100; ++i) good += std::string(kGerman.size(), 'x') + "\n";
  const std::string bad = kGerman + "\n";
  EXPECT_EQ(load_dataset(write("a.txt", good + bad + bad + bad + bad + bad), {}, ByteTokenizer()).bad.total(),
            5u);
  EXPECT_EQ(load_dataset(write("b.txt", "one\n" + bad + bad), {}, ByteTokenizer()).bad.total(), 2u);
  const std::string six = good + bad + bad + bad + bad + bad + bad;
  EXPECT_NE(refused(write("c.txt", six)).find("WINDOWS-1252"), std::string::npos);
  DataConfig data = write("c.txt", six);
  data.on_bad_record = OnBadRecord::kSkip;
  EXPECT_EQ(load_dataset(data, {}, ByteTokenizer()).bad.total(), 6u);
}

}  // namespace
}  // namespace tightloop
