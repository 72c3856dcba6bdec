"""What people have in env files, clouds, CI systems and tools of machine learning: secrets, and what looks like one.

Each row is a variable. `<a1*9>` is nine times `a1`, so that no key of a real form stands in this repository.
"""

from __future__ import annotations

import re


def _rows(text: str) -> list[tuple[str, str]]:
    text = re.sub(r"<(\w*)\*([0-9]+)>", lambda found: found[1] * int(found[2]), text)
    return [(name, value) for name, _, value in (line.partition("=") for line in text.strip().splitlines())]


# Names whose values are secrets, then values that are some under any name.
SECRETS = _rows(r"""
WANDB_API_KEY=<0a1b*10>
HF_TOKEN=hunter2
HUGGING_FACE_HUB_TOKEN=hunter2
MLFLOW_TRACKING_PASSWORD=hunter2
AWS_ACCESS_KEY_ID=hunter2
AWS_SECRET_ACCESS_KEY=wJalr/K7MDENG/bPxRfi
AWS_SESSION_TOKEN=IQoJb3JpZ2luX2VjEJr
AZURE_CLIENT_SECRET=8Q~hunter2
AZURE_STORAGE_KEY=aGVsbG8gd29ybGQ=
AZURE_STORAGE_CONNECTION_STRING=hunter2
AZURE_STORAGE_SAS_TOKEN=sv=2022-11-02&sig=hunter2
BLOB_SAS=hunter2
SAS=hunter2
OPENAI_API_KEY=hunter2
OPENAIAPIKEY=hunter2
NEPTUNE_API_TOKEN=eyJhcGlfYWRkcmVzcyI6Imh0dHBzIn0=
KAGGLE_KEY=hunter2
NGC_CLI_API_KEY=nvapi-hunter2
DATABRICKS_TOKEN=dapi0123456789
GITHUB_PAT=hunter2
GITHUB_PATS=hunter2
GH_TOKENS=ghp_a1B2,ghp_a1B3
ACCESS_TOKENS=hunter2
OAUTH_REFRESH_TOKENS=hunter2
TOKENS=abc123def456abc123
CI_JOB_JWT=hunter2
JWT=hunter2
JWTS=hunter2
DOCKER_AUTH_CONFIG=hunter2
REDISCLI_AUTHTOKEN=hunter2
PGPASSWORD=hunter2
PGPASS=hunter2
SSHPASS=hunter2
DB_PASS=hunter2
DBPASS=hunter2
DB_PASS_2=hunter2
dbPassword=hunter2
ROOTPW=hunter2
LDAP_BIND_PW=hunter2
MYSQL_PWD=hunter2
MYSQL_ROOT_PASSWORD=1234
TF_VAR_db_password=hunter2
PASSWD=hunter2
PASSCODE=hunter2
SSH_PASSPHRASE=hunter2
DJANGO_SECRET_KEY=hunter2
SECRET_KEY_BASE=hunter2
FLASK_SECRET=hunter2
SECRETS=hunter2
CREDS=hunter2
MY_CREDENTIALS=hunter2
AIRFLOW__CORE__FERNET_KEY=46BKJoQYlPPOexq0OhDZnIlNepKFf87WFwLbfzqDDho=
KEY=hunter2
my_key=hunter2
accountKey=hunter2
API_KEYS=hunter2
SIGNING_KEY=hunter2
LICENSE_KEY=ABCD-EFGH-IJKL
PRIVATE_ID=hunter2
GITLAB_PRIVATE_TOKEN=hunter2
BEARER=hunter2
AUTHORIZATION=hunter2
BASIC_AUTH=me:hunter2
COOKIE=session=hunter2
SESSION_COOKIE=hunter2
SESSION_ID=s%3Aj0Wd8xQ2
PHPSESSID=hunter2
SALT=mD9f3kQ7xWz1
PASSWORD_SALT=mD9f3kQ7xWz1
PEPPER=mD9f3kQ7xWz1
PIN=471199
CARD_PIN=4711
SMS_OTP=123456
TOTP_SECRET=JBSWY3DPEHPK3PXP
MNEMONIC=legal winner thank year wave sausage worth useful legal winner thank yellow
SEED_PHRASE=legal winner thank year
RECOVERY_PHRASE=legal winner thank year
HMAC=9f86d081884c7d659a2f
WEBHOOK_HMAC=hunter2
SIGNATURE=9f86d081884c7d659a2f
X_AMZ_SIGNATURE=9f86d081884c7d659a2f
STRIPE_SK=hunter2
SLACK_WEBHOOK=hunter2
WEBHOOK_URL=hunter2
SENTRY_DSN=hunter2
DB_CONN_STR=hunter2
CONNSTR=hunter2
TOKEN_FILE=hunter2
GIT=ghp_<a1B2*9>
GIT=glpat-<a*20>
HUB=hf_<aB3*10>
CLOUD=AKIA<IOSFODNN*2>
CLOUD=AIza<aB3xy*7>
CHAT=xoxb-<1*12>
CHAT=xapp-1-A<1*9>
MODELS=sk-<a1*12>
PACKAGES=npm_<a1B2*9>
PACKAGES=pypi-AgEIcHlwaS5vcmc<a1*20>
SHOP=sk_live_<a1*12>
SHOP=rk_test_<a1*12>
MAIL=SG.<a1*11>.<x*43>
HOST=dop_v1_<a1*32>
VAULT=hvs.<a1*12>
WEB=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl
PEM=-----BEGIN <*1>PRIVATE KEY----- <MIIE*9>
HOOK=https://hooks.slack.com/services/T<0*8>/B<0*8>/<aB3*8>
HOOK=https://discord.com/api/webhooks/1234/hunter2
HEADER=Authorization: Bearer abc
HEADER=Bearer <a1*8>
HEADER=token <a1*8>
HEADER=Basic bWU6aHVudGVyMg==
HEADER=X-Api-Key: hunter2
STORE=DefaultEndpointsProtocol=https;AccountName=me;AccountKey=aGk1;
STORE=host=db user=me password=hunter2
OPTIONS=lr=0.1,api_key=hunter2
OPTIONS=--epochs 3 --password hunter2 -v
LINE=machine h login me password hunter2
JSON={"password": "hunter2"}
JSON={"auths": {"host": {"auth": "bWU6aHVudGVyMg=="}}}
JSON={"type": "service_account", "private_key_id": "0123abcd"}
LOGIN=user:pass@host
LOGIN=me:hunter2@10.0.0.7
PROXY=me:hunter2@proxy.corp:3128
URL=https://me:hunter2@host/x
URL=postgres://me:hunter2@db/x
URL=redis://:hunter2@cache:6379/0
URL=https://objectstorage.eu.oraclecloud.com/p/hunter2/n/ns/b/x/o/y
URL=https://b.s3.amazonaws.com/x?X-Amz-Signature=hunter2
""")

# All of these are shown, sent and taken as they are.
PLAIN = _rows(r"""
PASSES=3
PASS=2
PASS_RATE=0.9
PASSENGERS=bert
HAS_PASSWORD=no
PASSWORD_FILE=/run/secrets/db
PASSWORD_LENGTH=16
EMPTY_PASSWORD=
TOKENIZER=bert-base-uncased
TOKENIZERS_PARALLELISM=false
TOKENS=4096
TOKENS=1_000_000
TOKENS=300B
TOKENS=1e9
NUM_TOKENS=2048
MAX_TOKENS=512
TRAIN_TOKENS=1000000000
TOKENS_PER_BATCH=524288
TOKEN_COUNT=100000
TOKEN_LIMIT=131072
TOKEN_DROP=0.15
PAD_TOKEN=<pad>
EOS_TOKEN=</s>
EOS_TOKEN_ID=128001
MASK_TOKEN=[MASK]
IMAGE_TOKEN=<image>
IMAGE_TOKEN_INDEX=32000
STOP_TOKENS=###
USE_TOKEN=no
CLIENT_TOKEN=1
TOKEN_FILE=/run/secrets/t.txt
TOKEN_FILE=keys/token.txt
HF_TOKEN_PATH=/mnt/hf2/token
AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/secrets/eks.amazonaws.com/serviceaccount/token
AWS_SHARED_CREDENTIALS_FILE=~/.aws/credentials
GOOGLE_APPLICATION_CREDENTIALS=/mnt/keys/me.json
GOOGLE_APPLICATION_CREDENTIALS=/secrets/gcp
SSH_KEY_PATH=~/.ssh/id_ed25519
SSH_AUTH_SOCK=/tmp/ssh-XXXX/agent.1
KUBECONFIG=~/.kube/config
AUTHOR=x
SASHA=1
KEY=image
KEYS=image,label
SORT_KEY=label
PRIMARY_KEYS=user_id, item_id
KEY_COLUMNS=user_id,day
KEY_FRAMES=12
KEY_BITS=2048
KEY_VALUE_SLOTS=131072
NUM_KEY_VALUE_HEADS=8
KEY_DIR=~/keys/
KEYBOARD=us
KEYPOINTS=17
KEYWORDS=a,b
MONKEY=7
KMS_KEY_ID=ocid1.key.oc1.iad.aaaa.bbbb
DB_SECRET_OCID=ocid1.vaultsecret.oc1.iad.aaaa
VAULT_SECRETS=TOKEN=ocid1.vaultsecret.oc1.iad.aaaa DB_PASS=ocid1.vaultsecret.oc1..b
SECRET_NAME=my-secret
SECRETARY=bert
NO_SECRET=no
PRIVATE_SUBNET=true
SEED=1234567890
SEEDS=1,2,3
PIN_MEMORY=true
PIN=17
PIN_CPUS=0,2,4
CPU_PIN=0-15
PINNED=1
SALT=16
SALT_SIZE=16
SALT_BUCKETS=32768
PEPPER=0.02
PHRASE=hello world
SESSION_ID=3
SESSION_TIMEOUT=3600
SIGNATURE=serving_default
SIGNATURE_COLUMN=sig
HMAC=sha256
HMAC_ALGORITHM=sha256
JWT_ALGORITHM=HS256
COOKIES=false
COOKIE_DOMAIN=example.com
SK=sk_live_demo
SK_LEARN=1
PATTERN=*
PATIENCE=1
PATS=3
DSN_COUNT=1
BASIS=sas
BEARERS=two
BYPASS=cache
COMPASS=north
LOWPASS=butter
PWD=/home/me/x
OLDPWD=/home
AUTH=basic
AUTH_TYPE=basic
OCI_AUTH=resource_principal
CONNECTION=string
LAUNCH_KEY=<a1*16>
URL=postgresql://me@db/x
PAGE=https://host/x?page=2&key_frames=3
WHERE=s3://bucket/key=1
BRANCH=git+ssh://git@host/r@main
GIT_URL=git@github.com:team/repo.git
REMOTE=me@host:/data
BUCKET=oci://bucket@namespace/folder
EMAIL=me@example.com
LINK=mailto:me@example.com
SPLIT=train:all@v2
IMAGE=iad.ocir.io/ns/team/dask:1
IMAGE=dask:1@sha256:<9f86d081*8>
SHA=<9f86d081*5>
NOTE=a basic understanding
NOTE=the password policy of this machine
NOTE=token embeddings are tied
NOTE=one token per word
LEVEL=basic block-3-layers
NPM=npm_config_cache
CONFIG={"lr": 0.1, "max_tokens": 512, "sort_key": "label"}
OVERRIDES=model.tokenizer=bert train.passes=3
OPTIONS=--tokenizer bert --sort-key label --pass 3 --key-file /x/y.txt
HOSTS=a:1 b:2
CUBLAS_WORKSPACE_CONFIG=:4096:8
PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128
""")
