"""Examples of the forms of secrets that scanners know, made when a test runs: no file holds one.

{h32} stands for 32 hexadecimal digits; d digits, l small letters and digits, u capitals and digits, B those of base 32,
a letters and digits.
"""

from __future__ import annotations

import random
import re
import string

FORMS = r"""
A3-{u6}-{u11}-{u5}-{u5}-{u5}
ops_eyJ{a250}
p8e-{l32}
pat{a14}.{h64}
LTAI{l20}
sk-ant-admin01-{a93}AA
sk-ant-api03-{a93}AA
AKCp{a69}
cmVmd{a59}
sc_{l5}.{l4}.acc_{l10}.{l30}
A3T{u1}{B16}
ABSK{a109}
{a3}{d1}Q~{a31}
4b1d{a38}
CLOJARS_{l60}
v1.0-{h24}-{h146}
dapi{h32}
doo_v1_{h64}
dop_v1_{h64}
dor_v1_{h64}
dp.pt.{l43}
duffel_test_{l43}
dt0c01.{l24}.{l64}
EZAK{l54}
EZTK{l54}
FLWSECK_TEST-{h12}
FLWPUBK_TEST-{h32}-X
FLWSECK_TEST-{h32}-X
fo1_{a43}
fio-u-{l64}
AIza{a35}
ghs_{a36}
github_pat_{a82}
gho_{a36}
ghp_{a36}
ghr_{a36}
glcbt-{a1}_{a20}
gldt-{a20}
glffct-{a20}
glft-{a20}
glimt-{a25}
glagent-{a50}
gloas-{a64}
glpat-{a20}
glpat-{a27}.{l9}
glptt-{h40}
GR1348941{a20}
glrt-{a20}
glsoat-{a20}
eyJrIjoi{a70}
glc_{a32}
glsa_{a32}_{h8}
pat.{a22}.{a24}.{a20}
{l14}.atlasv1.{l60}
HRKU-AA{a58}
hf_{l34}
api_org_{l34}
ico-{a32}
s-s4t2ud-{h64}
ZXlKaGJHY2lPaU{a40}
lin_api_{l40}
{a6}_{a29}_mmk
ntn_{d11}{a35}
npm_{l36}
API-{u26}
sha256~{a43}
pplx-{a48}
pscale_tkn_{a32}
pscale_oauth_{a32}
pscale_pw_{a32}
PMAK-{h24}-{h34}
pnu_{a36}
pul-{h40}
pypi-AgEIcHlwaS5vcmc{a50}
rdme_{l70}
rubygems_{h48}
tk-us-{a48}
SG.{l66}
xkeysib-{h64}-{l16}
sntryu_{h64}
sm_aat_{a16}
sm_pat_{a16}
sm_sat_{a16}
shippo_live_{h40}
shpat_{h32}
shpca_{h32}
shppa_{h32}
shpss_{h32}
xapp-{d1}-{u12}-{d12}-{l12}
xoxb-{d10}-{d10}
xoxb-{d8}-{a18}
xoxo-{d12}-{d12}-{d12}-{h12}
xoxa-{a8}
xoxe-{d10}-{d10}-{d10}-{a28}
hooks.slack.com/services/{a43}
sgp_{h16}_{h40}
EAAA{a22}
sk_test_{a10}
SK{h32}
hvb.{a138}
hvs.{a90}
AIK_CI_{a20}
AIK_SECRET_{a64}
apify_api_{a34}
$aact_prod_{a20}
BBDC-{a32}
BSA{a24}
bkaa_{a75}
bkua_{l40}
cnvca{a51}
sk_car_{a20}
csk-{l48}
CCIPAT_{a22}_{l40}
cfat_{a40}{h8}
csa_{h30}{a6}
CCDB1_{a22}_{a40}
configcat-sdk-1/{a22}/{a22}
AstraCS:{a20}
ddp_{a36}
dvc_client_{a8}
dvc_mobile_{a8}
dvc_server_{a8}
apk_user_{a120}
apk_{a80}
cog_{b52}
SWMTKN-1-{l50}-{l24}
SWMKEY-1-{a40}
dckr_oat_{a32}
dckr_pat_{a27}
essu_{a60}
EXO{a24}
figd_{u38}
AQ.Ab8RN6{a44}
incoming+{d12}-{a12}-issue@
glpat-{a27}.{l2}.{l9}
gsk_{u52}
ion_{a42}
lsv2_pt_{h32}_{h10}
lsv2_sk_{h32}_{h10}
sk-lf-{h8}-{h4}-{h4}-{h4}-{h12}
lip_{a16}
llx-{a44}
mlsn.{a30}
mercury_production_{l3}_{a40}_yrucrem
mergify_application_key_{a40}
sk-api-{a119}
eyJtaXJv{a10}_{a20}
mdb_sa_sk_{a40}
napi_{a64}
nvapi-{u60}
nyk_{a67}
os_v2_app_{b103}
api_live_ca.{a20}
api_live.{a20}
api_live_us.{a20}
sk-or-v1-{h64}
pdl_live_apikey_{l26}_{a22}_{a3}
persona_production_{l20}
pcsk_{a5}_{a63}
pina_{a20}
polar_at_{a20}
polar_oat_{a20}
polar_pat_{a20}
phx_{a41}
phc_{a41}
prf_{a20}
ramp_sec_{a48}
rpa_{a30}
rnd_{a28}
r8_{a37}
rootly_{h64}
rpa_{u40}{a6}
00{a13}!{a80}
samsara_api_{a26}
sgp_{a64}
xoxd-{a100}.
xoxc-{d9}-{d9}-{d9}-{h64}
sbp_{l40}
sb_secret_{a31}
{a22}==:{a32}
tskey-api-{a20}
tss_{a20}
tgp_v1_{a43}
unkey_{a20}
ucat_{a24}
vtwn_{a20}
vck_{a56}
vca_{a56}
vcr_{a56}
vci_{a56}
vcp_{a56}
pa-{a43}
waka_{l36}
wandb_v1_{a77}
wrka-eyJ{a8}.{a16}.{a64}
xai-{a70}
xnd_production_{a56}
zpka_{l32}_{h8}
CCIPRJ_{a22}_{h40}
ddo_{a36}
xai-{a80}
HRKU-{a60}
npm_{a36}
sk-or-v{d12}-{a20}
packagist_ort_{h68}
packagist_out_{h68}
packagist_acs_{h64}
PMAT-{a26}
SG.{a22}.{a43}
xoxe.xoxp-{d1}-{a166}
xoxe-{d1}-{a147}
xapp-{d1}-{a11}-{d13}-{h64}
AGE-SECRET-KEY-1{u58}
sk-proj-{a74}T3BlbkFJ{a74}
sk-{h32}
sk-{a48}
{h32}.{a16}
re_{a8}_{a24}
bedrock-api-key-{a40}
_gitlab_session={h32}
curl -u name:{a12} https://host.example
gcntfy-word-{h8}-{h4}-{h4}-{h4}-{h12}-{h8}-{h4}-{h4}-{h4}-{h12}
https://name.webhook.office.com/webhookb2/{h8}-{h4}-{h4}-{h4}-{h12}@{h8}-{h4}-{h4}-{h4}-{h12}/IncomingWebhook/{h32}/{h8}
Endpoint=https://name.azconfig.io;Id={a4};Secret={a36}=
Endpoint=sb://name.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey={a43}=
DefaultEndpointsProtocol=https;AccountName=name;AccountKey={a86}==
https://name.blob.core.windows.net/box?sv=2024-11-04&se=2027-01-01&sig={a40}%3D
glrt-t{d1}_{a27}.{l9}
xoxe.xoxp-{d1}-{u163}
xoxe-{d1}-{u146}
eyJ{a20}.eyJ{a40}.{a43}
eyJ{a20}.eyJ{a40}.
sntrys_eyJpYXQiO{a40}_{a43}
{d15}|{a27}
EAAC{a100}
{d9}:AA{a33}
https://hooks.slack.com/services/T{u8}/B{u8}/{a24}
https://discord.com/api/webhooks/{d18}/{a68}
M{a23}.{a6}.{a38}
https://hooks.zapier.com/hooks/catch/{d7}/{a7}
https://chat.googleapis.com/v1/spaces/{a11}/messages?key=k&token={a43}
key-{h32}
{h32}-us{d2}
AC{h32}
GOCSPX-{a28}
ya29.{a60}
1//0{a60}
amzn.mws.{h8}-{h4}-{h4}-{h4}-{h12}
access_token$production${l16}${h32}
hvs.{a24}
s.{a24}
dose{h32}
secret_{a43}
whsec_{a32}
sq0csp-{a43}
ATATT3{a180}
ATBB{a32}
figd_{a40}
NRAK-{u27}
sqp_{h40}
nfp_{a40}
sl.{a130}
tskey-auth-{a20}-{a20}
y0_{a50}
KGAT_{a32}
jina_{a60}
tvly-dev-{a32}
fw_{a24}
pat-na{d1}-{h8}-{h4}-{h4}-{h4}-{h12}
postgres://name:{a12}@host.example:5432/db
redis://:{a12}@host.example:6379
""".strip().splitlines()

_ALPHABETS = {
    "h": string.hexdigits[:16], "d": string.digits, "l": string.ascii_lowercase + string.digits, "b": string.ascii_lowercase + "234567",
    "u": string.ascii_uppercase + string.digits, "B": string.ascii_uppercase + "234567", "a": string.ascii_letters + string.digits,
}  # fmt: skip


def made(form: str) -> tuple[str, list[str]]:
    """A secret of a form, and its parts that nobody else has."""
    chance, parts = random.Random(form), list[str]()

    def drawn(found: re.Match[str]) -> str:
        text = "".join(chance.choice(_ALPHABETS[found[1]]) for _ in range(int(found[2])))
        text = text if len(text) < 8 else f"{text[:3]}7{text[4:]}"  # none is a word
        parts.append(text)
        return text

    whole = re.sub(r"\{([hdluabB])(\d+)\}", drawn, form)
    return whole, [max(parts, key=len)]
