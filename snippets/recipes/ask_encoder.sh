curl http://127.0.0.1:8080/ --data '{"texts": ["How do I serve an encoder?", "A short text."]}'
